/* hearsay-perf: one table of benchmarks, one shape of results. */
#include <stdio.h>

#include "core/base/log.h"
#include "core/base/output.h"
#include "perf/bench.h"
#include "perf/compare.h"
#include "perf/perf_options.h"
#include "perf/progress.h"

enum { EXIT_FAILED = 1, EXIT_USAGE, EXIT_NOT_POSSIBLE = 77 };

static int list(void)
{
    uint32_t n;
    const struct benchmark *all = benchmarks(&n);
    for (uint32_t i = 0; i < n; i++)
        printf("%-8s %s (%s)\n", all[i].name, all[i].summary, all[i].metrics);
    return output_finish("hearsay-perf");
}

static int fail(const struct error *err, int rc)
{
    progress_clear();
    fprintf(stderr, "hearsay-perf: %s\n", err->text);
    return rc == HS_ERR_UNSUPPORTED ? EXIT_NOT_POSSIBLE : rc == HS_ERR_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    static struct perf_config config;
    struct error err = {0};
    struct report report;
    int rc = perf_options_parse(argc, argv, &config, &err);
    if (rc > 0)
        return output_finish("hearsay-perf");
    if (rc < 0) {
        fprintf(stderr, "hearsay-perf: %s\n", err.text);
        return EXIT_USAGE;
    }
    const char *output = config.json_path ? "--json" : config.csv_path ? "--csv" : config.plot_path ? "--plot" : NULL;
    if (output && !config.bench) {
        error_set(&err, HS_ERR_INVALID, "%s: %s has no results to write; leave it out", output, config.list ? "list" : "compare");
        return fail(&err, HS_ERR_INVALID);
    }
    if (config.list)
        return list();
    if (config.compare) {
        rc = compare_run(config.files[0], config.files[1], config.tolerance, &err);
        return rc == 0 ? output_finish("hearsay-perf") : fail(&err, rc);
    }
    if (config.plot_path && (rc = report_can_plot(&err)) != 0)
        return fail(&err, rc);

    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    report_init(&report, config.bench->name);
    rc = config.bench->run(&config, &report, &err);
    progress_clear();
    if (rc == 0 && report.failed)
        rc = error_set(&err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    if (rc == 0 && config.json_path)
        rc = report_write_json(&report, config.json_path, &err);
    if (rc == 0 && config.csv_path)
        rc = report_write_csv(&report, config.csv_path, &err);
    if (rc == 0 && config.plot_path)
        rc = report_plot(&report, config.plot_path, &err);
    report_fini(&report);
    return rc == 0 ? output_finish("hearsay-perf") : fail(&err, rc);
}
