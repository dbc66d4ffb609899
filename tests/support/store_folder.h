/* SPDX-License-Identifier: Apache-2.0 */
/* store_folder.h: a folder for a disk store that a test creates, damages and removes. */
#ifndef TESTS_STORE_FOLDER_H
#define TESTS_STORE_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "tiny_random.h"

#define STORE_FOLDER_BYTES 64

/* Makes an empty one, its path into out[STORE_FOLDER_BYTES]. */
void store_folder_make(char *out);
void store_folder_remove(const char *dir);
/* Writes a key, one of 255, beside the folder; its path into out[STORE_FOLDER_BYTES]. */
void store_folder_key(const char *dir, char *out, unsigned char key);
/* Bytes that it takes on disk, all in all. */
uint64_t store_folder_bytes(const char *dir);
/* Number of files in it with names that end so. */
int store_folder_count(const char *dir, const char *end);
/* While no process has it open: flips the last byte of every file with a name that ends so. */
void store_folder_flip(const char *dir, const char *end);
/* While no process has it open: flips a bit of, truncates, empties or removes one file or several, never the marker:
 * with marker and index damaged, the folder would be refused as foreign (tests/cli/test_store_folder.py). */
void store_folder_damage(const char *dir, tiny_random *r);

#endif
