/* SPDX-License-Identifier: Apache-2.0 */
/* scratch_file.h: one file in memory or in /tmp, with a name; removed at exit. The store follows no symbolic link,
 * which excludes /proc/self/fd/N. */
#ifndef SUPPORT_SCRATCH_FILE_H
#define SUPPORT_SCRATCH_FILE_H

#include <stddef.h>

/* Its path: static, the same for every call. Ends the program if there is none. */
const char *scratch_file_path(void);
/* Makes these n bytes its content. Ends the program if that fails. */
void scratch_file_write(const void *bytes, size_t n);

#endif
