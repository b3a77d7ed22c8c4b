#include "perf/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/csv.h"

void report_init(struct report *report, const char *bench)
{
    *report = (struct report){.bench = bench, .options = json_object()};
    report->failed = !report->options;
}

void report_fini(struct report *report)
{
    json_decref(report->options);
    free(report->rows);
    *report = (struct report){0};
}

void report_option(struct report *report, const char *name, json_t *value)
{
    if (json_object_set_new(report->options, name, value) != 0)
        report->failed = true;
}

struct report_row *report_add(struct report *report, const char *name, const char *metric, const char *unit,
                              struct samples *samples, bool percentiles)
{
    struct report_row *rows = realloc(report->rows, (report->n_rows + 1) * sizeof *rows);
    if (!rows || samples->failed) {
        report->rows = rows ? rows : report->rows;
        report->failed = true;
        return NULL;
    }
    report->rows = rows;
    struct report_row *row = &rows[report->n_rows++];
    samples_sort(samples);
    *row = (struct report_row){
        .metric = metric,
        .unit = unit,
        .n = samples->n,
        .median = samples_median(samples),
        .min = samples->n ? samples->values[0] : NAN,
        .max = samples->n ? samples->values[samples->n - 1] : NAN,
        .p50 = percentiles ? samples_percentile(samples, 0.5) : NAN,
        .p99 = percentiles ? samples_percentile(samples, 0.99) : NAN,
        .limit = NAN,
        .peer_median = NAN,
        .ratio = NAN,
    };
    snprintf(row->name, sizeof row->name, "%s", name);
    return row;
}

void report_compare(struct report_row *row, const char *peer, double peer_median, bool higher_is_better)
{
    row->peer = peer;
    row->peer_median = peer_median;
    row->ratio = higher_is_better ? row->median / peer_median : peer_median / row->median;
}

static void print_number(double value, int width)
{
    if (!isfinite(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, fabs(value) >= 1000 ? 0 : fabs(value) >= 100 ? 1 : 3, value);
}

void report_print_row(const struct report *report, const struct report_row *row)
{
    if (row == report->rows)
        printf("%-36s %-22s %-10s %5s %9s %9s %9s %9s %9s %6s %9s %6s\n", "case", "metric", "unit", "n", "median", "min", "max",
               "p99", "limit", "share", "peer", "ratio");
    printf("%-36s %-22s %-10s %5zu", row->name, row->metric, row->unit, row->n);
    print_number(row->median, 9);
    print_number(row->min, 9);
    print_number(row->max, 9);
    print_number(row->p99, 9);
    print_number(row->limit, 9);
    if (isfinite(row->limit))
        printf(" %5.0f%%", 100 * row->median / row->limit);
    else
        printf(" %6s", "-");
    print_number(row->peer_median, 9);
    print_number(row->ratio, 6);
    printf("\n");
    fflush(stdout);
}

static void set_number(json_t *object, const char *name, double value)
{
    if (isfinite(value))
        json_object_set_new(object, name, json_real(value));
}

static json_t *row_json(const struct report_row *row)
{
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:I}", "case", row->name, "metric", row->metric, "unit", row->unit, "n", (json_int_t)row->n);
    if (!object)
        return NULL;
    set_number(object, "median", row->median);
    set_number(object, "min", row->min);
    set_number(object, "max", row->max);
    set_number(object, "p50", row->p50);
    set_number(object, "p99", row->p99);
    set_number(object, "limit", row->limit);
    set_number(object, "share_of_limit", row->median / row->limit);
    if (row->peer)
        json_object_set_new(object, "peer", json_string(row->peer));
    set_number(object, "peer_median", row->peer_median);
    set_number(object, "ratio", row->ratio);
    return object;
}

static FILE *open_output(const char *path, struct error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (!file)
        error_set(err, HS_ERR_IO, "%s: %s; give a path that can be written", path, strerror(errno));
    return file;
}

static int close_output(FILE *file, const char *path, bool good, struct error *err)
{
    good = (file == stdout ? fflush(file) : fclose(file)) == 0 && good;
    return good ? 0 : error_set(err, HS_ERR_IO, "%s: writing failed: %s", path, strerror(errno));
}

int report_write_json(const struct report *report, const char *path, struct error *err)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < report->n_rows; i++)
        json_array_append_new(rows, row_json(&report->rows[i]));
    json_t *whole = json_pack("{s:s, s:s, s:o, s:O, s:o}", "bench", report->bench, "version", HEARSAY_VERSION, "machine",
                              machine_describe(), "options", report->options, "rows", rows);
    if (!whole || report->failed) {
        json_decref(whole);
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    }
    FILE *file = open_output(path, err);
    if (!file) {
        json_decref(whole);
        return HS_ERR_IO;
    }
    bool good = json_dumpf(whole, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && fputc('\n', file) != EOF;
    json_decref(whole);
    return close_output(file, path, good, err);
}

static void write_csv_number(FILE *file, double value)
{
    char text[32] = "";
    if (isfinite(value))
        snprintf(text, sizeof text, "%.5g", value);
    csv_write(file, text, 0);
}

static void write_csv_row(FILE *file, const char *bench, const struct report_row *row)
{
    char n[24];
    snprintf(n, sizeof n, "%zu", row->n);
    csv_write(file, bench, 1);
    csv_write(file, row->name, 0);
    csv_write(file, row->metric, 0);
    csv_write(file, row->unit, 0);
    csv_write(file, n, 0);
    const double before[] = {row->median, row->min, row->max, row->p50, row->p99, row->limit, row->median / row->limit};
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        write_csv_number(file, before[i]);
    csv_write(file, row->peer ? row->peer : "", 0);
    write_csv_number(file, row->peer_median);
    write_csv_number(file, row->ratio);
    fputc('\n', file);
}

int report_write_csv(const struct report *report, const char *path, struct error *err)
{
    FILE *file = open_output(path, err);
    if (!file)
        return HS_ERR_IO;
    fputs("bench,case,metric,unit,n,median,min,max,p50,p99,limit,share_of_limit,peer,peer_median,ratio\n", file);
    for (size_t i = 0; i < report->n_rows; i++)
        write_csv_row(file, report->bench, &report->rows[i]);
    return close_output(file, path, !ferror(file), err);
}
