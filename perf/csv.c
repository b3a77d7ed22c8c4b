#include "perf/csv.h"

#include <string.h>

void csv_write(FILE *file, const char *field, int first)
{
    if (!first)
        fputc(',', file);
    if (!strpbrk(field, ",\"")) {
        fputs(field, file);
        return;
    }
    fputc('"', file);
    for (const char *c = field; *c; c++) {
        if (*c == '"')
            fputc('"', file);
        fputc(*c, file);
    }
    fputc('"', file);
}

/* Unquotes one field in place; returns where the next one begins, NULL behind the last. */
static char *take_field(char *from, char **field)
{
    char *to = from;
    *field = from;
    int quoted = *from == '"';
    from += quoted;
    for (; *from; from++) {
        if (quoted && from[0] == '"' && from[1] == '"')
            from++;
        else if (quoted && *from == '"') {
            quoted = 0;
            continue;
        } else if (!quoted && *from == ',')
            break;
        *to++ = *from;
    }
    char *next = *from == ',' ? from + 1 : NULL;
    *to = '\0';
    return next;
}

size_t csv_split(char *line, char *fields[], size_t cap)
{
    size_t n = 0;
    line[strcspn(line, "\r\n")] = '\0';
    for (char *rest = line; rest && n < cap; n++)
        rest = take_field(rest, &fields[n]);
    return n;
}
