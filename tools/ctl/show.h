/*
 * JSON as people read it: scalars as aligned "name  value" lines, nested objects under headings, lists as tables of chosen columns.
 *
 * Threading: pure. Output goes to the stream; nothing is owned.
 */
#ifndef HEARSAY_TOOLS_SHOW_H
#define HEARSAY_TOOLS_SHOW_H

#include <jansson.h>
#include <stdio.h>

enum { SHOW_MAX_COLUMNS = 16 };

struct show_column {
    const char *title;
    const char *path; /* of the member in each row, dotted: "load.waiting" */
};

/* Everything but lists. */
void show_object(FILE *out, json_t *object);
/* n at most SHOW_MAX_COLUMNS; a member that is not there shows as "-". */
void show_table(FILE *out, json_t *list, const struct show_column *columns, int n);

#endif
