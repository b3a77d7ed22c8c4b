/*
 * JSON as people read it: scalars as aligned "name  value" lines, lists of objects as tables, nested objects under their name.
 *
 * Threading: pure. Output goes to the stream; nothing is owned.
 */
#ifndef HEARSAY_TOOLS_SHOW_H
#define HEARSAY_TOOLS_SHOW_H

#include <jansson.h>
#include <stdio.h>

void show_object(FILE *out, json_t *object);
/* Lists of objects only: one table, columns in the order of the first object's members that are scalars. */
void show_table(FILE *out, json_t *list);

#endif
