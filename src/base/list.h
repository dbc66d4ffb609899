/* SPDX-License-Identifier: Apache-2.0 */
/* list.h: lists whose links are a member of their items: doubly linked ones, and chains.
 *
 *   typedef struct task { BASE_LINKS(struct task) queued; ... } task;     an item has such a member for each list that
 *         it may be in
 *   BASE_LIST(task) queue;                                                zeros: empty
 *
 *   first -> [item] <-> [item] <-> [item] <- last                         for (task *t = queue.first; t; t =
 *         t->queued.next)
 *
 * A list owns no item, takes no lock, and does not know whether an item is in it: a removed item keeps its links until
 * it is in a list again. Arguments are evaluated more than once.
 *
 *   typedef struct task { struct task *next; ... } task;
 *   task *chain;                                                          a pointer to the first item: for few items,
 *         or those that are inserted in order
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

#define BASE_LIST(type) \
    struct { \
        type *first, *last; \
    }
#define BASE_LINKS(type) \
    struct { \
        type *previous, *next; \
    }

#define BASE_LIST_APPEND(list, item, links) \
    do { \
        (item)->links.previous = (list)->last; \
        (item)->links.next = NULL; \
        *((list)->last ? &(list)->last->links.next : &(list)->first) = (item); \
        (list)->last = (item); \
    } while (0)

#define BASE_LIST_PREPEND(list, item, links) \
    do { \
        (item)->links.previous = NULL; \
        (item)->links.next = (list)->first; \
        *((list)->first ? &(list)->first->links.previous : &(list)->last) = (item); \
        (list)->first = (item); \
    } while (0)

#define BASE_LIST_REMOVE(list, item, links) \
    do { \
        *((item)->links.previous ? &(item)->links.previous->links.next : &(list)->first) = (item)->links.next; \
        *((item)->links.next ? &(item)->links.next->links.previous : &(list)->last) = (item)->links.previous; \
    } while (0)

/* Of chains: adds an item as the last one; removes one that is in the chain. They take time for each item before. */
#define BASE_CHAIN_APPEND(type, chain, item, links) \
    do { \
        type **base_link = &(chain); \
        while (*base_link) base_link = &(*base_link)->links; \
        (item)->links = NULL; \
        *base_link = (item); \
    } while (0)

#define BASE_CHAIN_REMOVE(type, chain, item, links) \
    do { \
        type **base_link = &(chain); \
        while (*base_link != (item)) base_link = &(*base_link)->links; \
        *base_link = (item)->links; \
    } while (0)

#endif
