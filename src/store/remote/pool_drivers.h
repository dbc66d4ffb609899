/* SPDX-License-Identifier: Apache-2.0 */
/* pool_drivers.h: the tables of the drivers of a pool (pool_driver.h). */
#ifndef STORE_POOL_DRIVERS_H
#define STORE_POOL_DRIVERS_H

#include "store/remote/pool_driver.h"

extern const pool_driver_ops pool_folder_ops;    /* dir:/FOLDER */
extern const pool_driver_ops pool_redis_ops;     /* redis://HOST:PORT */
extern const pool_driver_ops pool_redis_tls_ops; /* rediss://HOST:PORT */
extern const pool_driver_ops pool_s3_ops;        /* s3://BUCKET/PREFIX */
extern const pool_driver_ops pool_http_ops;      /* http://HOST/PATH/ */
extern const pool_driver_ops pool_https_ops;     /* https://HOST/PATH/ */

#endif
