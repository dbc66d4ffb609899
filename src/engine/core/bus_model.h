/* SPDX-License-Identifier: Apache-2.0 */
/* bus_model.h: measured speed of the bus between a device and RAM, and what follows from it for KV in RAM.
 *
 *   a copy         bytes * (to the device + to RAM, if the device is full: other KV leaves it)
 *   in place       bytes * to the device, for each token that is computed
 *   computed again the time that it took (cost_model.h, of the same device)
 *
 * What is not measured yet costs the same in both directions. Choices depend on times, results do not. One thread.
 */
#ifndef ENGINE_BUS_MODEL_H
#define ENGINE_BUS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bus_speed {
    double bytes, us; /* of copies, of which later ones count more */
} bus_speed;

typedef struct bus_model {
    bus_speed to_device, to_ram;
} bus_model;

/* Adds copies in one direction; 0 bytes: none. */
void bus_model_learn(bus_speed *s, uint64_t bytes, uint64_t us);
/* Microseconds a byte; 0: too little was copied. */
double bus_model_byte_us(const bus_speed *s);
/* Is KV in RAM that is read n times rather read in place than copied to the device first? Of equal costs, the copy: it
 * is under way beside steps. is_full: of the device. */
bool bus_model_reads_in_place(const bus_model *m, double n_reads, bool is_full);
/* Is it quicker to compute KV again, which took cost_us, than to copy its bytes to the device? cost_us 0: not known. */
bool bus_model_recomputes(const bus_model *m, uint64_t bytes, uint64_t cost_us);

#endif
