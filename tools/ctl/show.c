#include "tools/ctl/show.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_COLUMNS = 24, CELL_BYTES = 96 };

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

void show_table(FILE *out, json_t *list)
{
    const char *columns[MAX_COLUMNS];
    int widths[MAX_COLUMNS], n = 0;
    char cell[CELL_BYTES], name[CELL_BYTES];
    const char *key;
    json_t *value, *row;
    size_t index;

    json_object_foreach (json_array_get(list, 0), key, value) {
        if (n < MAX_COLUMNS && cell_text(value, cell, sizeof cell)) {
            widths[n] = (int)strlen(clean_text(key, name, sizeof name));
            columns[n++] = key;
        }
    }
    json_array_foreach (list, index, row) {
        for (int i = 0; i < n; i++) {
            json_t *field = json_object_get(row, columns[i]);
            if (field && cell_text(field, cell, sizeof cell) && (int)strlen(cell) > widths[i])
                widths[i] = (int)strlen(cell);
        }
    }
    for (int i = 0; i < n; i++)
        fprintf(out, i + 1 < n ? "%-*s  " : "%-*s\n", widths[i], clean_text(columns[i], name, sizeof name));
    json_array_foreach (list, index, row) {
        for (int i = 0; i < n; i++) {
            json_t *field = json_object_get(row, columns[i]);
            if (!field || !cell_text(field, cell, sizeof cell))
                snprintf(cell, sizeof cell, "-");
            fprintf(out, i + 1 < n ? "%-*s  " : "%-*s\n", widths[i], cell);
        }
    }
}

static void show_scalars(FILE *out, json_t *object)
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
    json_object_foreach (object, key, value) {
        if (cell_text(value, cell, sizeof cell))
            fprintf(out, "%-*s  %s\n", width, clean_text(key, name, sizeof name), cell);
    }
}

void show_object(FILE *out, json_t *object)
{
    const char *key;
    json_t *value;
    char name[CELL_BYTES];
    show_scalars(out, object);
    json_object_foreach (object, key, value) {
        if (json_is_object(value) && json_object_size(value) > 0) {
            fprintf(out, "\n%s:\n", clean_text(key, name, sizeof name));
            show_object(out, value);
        } else if (json_is_array(value) && json_is_object(json_array_get(value, 0))) {
            fprintf(out, "\n%s:\n", clean_text(key, name, sizeof name));
            show_table(out, value);
        }
    }
}
