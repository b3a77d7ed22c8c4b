#include "tools/ctl/show.h"

#include <stdbool.h>
#include <string.h>

enum { CELL_BYTES = 96 };

/* A copy, cut to the room there is, in which nothing can drive a terminal: what a node says may come from others. */
static const char *clean_text(const char *text, char *out, size_t cap)
{
    size_t n = 0;
    for (; text[n] && n + 1 < cap; n++) {
        unsigned char c = (unsigned char)text[n], next = (unsigned char)text[n + 1];
        bool in_second_set = n && text[n - 1] == '\xC2' && c < 0xA0; /* U+0080 to U+009F */
        bool begins_second_set = c == 0xC2 && next < 0xA0;
        out[n] = c < 0x20 || c == 0x7F || begins_second_set || in_second_set ? '?' : text[n];
    }
    out[n] = '\0';
    return out;
}

/* A scalar's text in out; false for lists and objects. Whole floats lose their fraction, others keep four digits. */
static bool cell_text(const json_t *value, char *out, size_t cap)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        clean_text(json_string_value(value), out, cap);
        return true;
    case JSON_INTEGER:
        snprintf(out, cap, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return true;
    case JSON_REAL:
        snprintf(out, cap, "%.4g", json_real_value(value));
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(out, cap, "%s", json_is_true(value) ? "yes" : "no");
        return true;
    case JSON_NULL:
        snprintf(out, cap, "-");
        return true;
    default:
        return false;
    }
}

/* The member at a dotted path ("load.waiting"), NULL if there is none. */
static json_t *member_at(json_t *object, const char *path)
{
    char key[CELL_BYTES];
    for (const char *dot; object && (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        object = json_object_get(object, key);
    }
    return json_object_get(object, path);
}

static void cell_at(json_t *row, const char *path, char *cell, size_t cap)
{
    json_t *field = member_at(row, path);
    if (!field || !cell_text(field, cell, cap))
        snprintf(cell, cap, "-");
}

void show_table(FILE *out, json_t *list, const struct show_column *columns, int n)
{
    int widths[SHOW_MAX_COLUMNS];
    char cell[CELL_BYTES];
    json_t *row;
    size_t index;
    for (int i = 0; i < n; i++) {
        widths[i] = (int)strlen(columns[i].title);
        json_array_foreach (list, index, row) {
            cell_at(row, columns[i].path, cell, sizeof cell);
            if ((int)strlen(cell) > widths[i])
                widths[i] = (int)strlen(cell);
        }
    }
    for (int i = 0; i < n; i++)
        fprintf(out, "%-*s%s", i + 1 < n ? widths[i] : 0, columns[i].title, i + 1 < n ? "  " : "\n");
    json_array_foreach (list, index, row) {
        for (int i = 0; i < n; i++) {
            cell_at(row, columns[i].path, cell, sizeof cell);
            fprintf(out, "%-*s%s", i + 1 < n ? widths[i] : 0, cell, i + 1 < n ? "  " : "\n");
        }
    }
}

/* The scalars of one object under their heading; nothing when it has none. */
static void show_scalars(FILE *out, json_t *object, const char *heading)
{
    const char *key;
    json_t *value;
    char cell[CELL_BYTES], name[CELL_BYTES];
    int width = 0;
    json_object_foreach (object, key, value) {
        int len = (int)strlen(clean_text(key, name, sizeof name));
        if (cell_text(value, cell, sizeof cell) && len > width)
            width = len;
    }
    if (width && *heading)
        fprintf(out, "\n%s:\n", heading);
    json_object_foreach (object, key, value) {
        if (cell_text(value, cell, sizeof cell))
            fprintf(out, "%-*s  %s\n", width, clean_text(key, name, sizeof name), cell);
    }
}

static void show_under(FILE *out, json_t *object, const char *heading)
{
    const char *key;
    json_t *value;
    char name[CELL_BYTES], path[2 * CELL_BYTES];
    show_scalars(out, object, heading);
    json_object_foreach (object, key, value) {
        if (!json_is_object(value))
            continue;
        snprintf(path, sizeof path, "%.90s%s%.90s", heading, *heading ? " " : "", clean_text(key, name, sizeof name));
        show_under(out, value, path);
    }
}

void show_object(FILE *out, json_t *object)
{
    show_under(out, object, "");
}
