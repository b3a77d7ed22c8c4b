#include "perf/compare.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/csv.h"

enum { MAX_COLUMNS = 32 };
enum { COLUMN_BENCH, COLUMN_CASE, COLUMN_METRIC, COLUMN_SHARE, COLUMN_RATIO, COLUMNS };

static const char *const column_names[COLUMNS] = {
    [COLUMN_BENCH] = "bench", [COLUMN_CASE] = "case", [COLUMN_METRIC] = "metric", [COLUMN_SHARE] = "share_of_limit", [COLUMN_RATIO] = "ratio"};

struct comparison {
    const json_t *result;
    double tolerance;
    unsigned n_compared, n_worse;
};

static const json_t *find_row(const json_t *result, const char *name, const char *metric)
{
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(result, "rows"), i, row)
    {
        const char *row_name = json_string_value(json_object_get(row, "case"));
        const char *row_metric = json_string_value(json_object_get(row, "metric"));
        if (row_name && row_metric && strcmp(row_name, name) == 0 && strcmp(row_metric, metric) == 0)
            return row;
    }
    return NULL;
}

/* False: the text is no figure that anything can be held against. Empty: nothing to compare. */
static bool compare_value(struct comparison *c, const char *name, const char *metric, int column, const char *baseline_text)
{
    char *end;
    const double baseline = strtod(baseline_text, &end);
    if (!*baseline_text)
        return true;
    if (*end || !isfinite(baseline) || baseline <= 0)
        return false;
    const json_t *row = find_row(c->result, name, metric), *value = json_object_get(row, column_names[column]);
    double now = json_is_number(value) ? json_number_value(value) : NAN, change = now / baseline;
    bool worse = !(change >= 1 - c->tolerance);
    c->n_compared++;
    c->n_worse += worse;
    printf("%-36s %-22s %-15s %9.3f", name, metric, column_names[column], baseline);
    if (isfinite(now))
        printf(" %9.3f %7.3f%s\n", now, change, worse ? "  worse" : "");
    else
        printf(" %9s %7s  missing\n", "-", "-");
    return true;
}

/* Where the columns wanted stand in the heading; false if one is missing. */
static bool find_columns(char *heading, size_t at[COLUMNS])
{
    char *fields[MAX_COLUMNS];
    size_t n = csv_split(heading, fields, MAX_COLUMNS);
    for (int column = COLUMN_BENCH; column < COLUMNS; column++) {
        for (at[column] = 0; at[column] < n && strcmp(fields[at[column]], column_names[column]) != 0; at[column]++)
            ;
        if (at[column] == n)
            return false;
    }
    return true;
}

/* One line of the baseline; false if it is damaged. */
static bool compare_line(struct comparison *c, char *line, const size_t at[COLUMNS], const char *bench)
{
    char *fields[MAX_COLUMNS];
    const size_t n = csv_split(line, fields, MAX_COLUMNS);
    bool good = true;
    if (n == 1 && !*fields[0])
        return true;
    for (int column = COLUMN_BENCH; column < COLUMNS; column++)
        good &= at[column] < n;
    if (!good || strcmp(fields[at[COLUMN_BENCH]], bench) != 0)
        return good;
    for (int column = COLUMN_SHARE; column <= COLUMN_RATIO; column++)
        good &= compare_value(c, fields[at[COLUMN_CASE]], fields[at[COLUMN_METRIC]], column, fields[at[column]]);
    return good;
}

static int compare_lines(struct comparison *c, FILE *file, const char *path, const char *bench, struct error *err)
{
    char *line = NULL;
    size_t cap = 0, at[COLUMNS];
    int rc = 0;
    if (getline(&line, &cap, file) < 0 || !find_columns(line, at)) {
        free(line);
        return error_set(err, HS_ERR_PARSE, "%s: no baseline: its first line does not name bench, case, metric, share_of_limit, ratio",
                         path);
    }
    printf("%-36s %-22s %-15s %9s %9s %7s\n", "case", "metric", "", "baseline", "now", "ratio");
    for (unsigned number = 2; rc == 0 && getline(&line, &cap, file) >= 0; number++)
        if (!compare_line(c, line, at, bench))
            rc = error_set(err, HS_ERR_PARSE, "%s: line %u is damaged: columns or figures are missing; get a whole copy", path, number);
    free(line);
    return rc;
}

int compare_run(const char *baseline_csv, const char *result_json, double tolerance, struct error *err)
{
    json_error_t problem;
    json_t *result = json_load_file(result_json, 0, &problem);
    const char *bench = json_string_value(json_object_get(result, "bench"));
    if (!bench) {
        json_decref(result);
        return error_set(err, HS_ERR_PARSE, "%s: %s; give a file that --json wrote", result_json,
                         *problem.text ? problem.text : "not the results of a benchmark");
    }
    struct comparison c = {.result = result, .tolerance = tolerance};
    FILE *file = fopen(baseline_csv, "r");
    int rc = file ? compare_lines(&c, file, baseline_csv, bench, err) : error_set(err, HS_ERR_IO, "%s: %s", baseline_csv, strerror(errno));
    if (file)
        fclose(file);
    if (rc == 0 && c.n_compared == 0)
        rc = error_set(err, HS_ERR_PARSE, "%s has no share or ratio of the benchmark %s", baseline_csv, bench);
    if (rc == 0 && c.n_worse)
        rc = error_set(err, HS_ERR_LIMIT, "%u of %u figures are missing or more than %.0f %% below the baseline", c.n_worse,
                       c.n_compared, 100 * tolerance);
    json_decref(result);
    return rc;
}
