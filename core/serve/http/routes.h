/* Which path and method is answered how. Runs on MHD's threads. */
#ifndef HEARSAY_SERVE_HTTP_ROUTES_H
#define HEARSAY_SERVE_HTTP_ROUTES_H

#include "core/serve/http/exchange.h"

/* Chooses the route of a request by its headers. 0, or -1 with error filled (404, 405, 403, 413) and the response due at once. */
int routes_choose(struct exchange *exchange, const char *method, struct api_error *error);
/* The request is there whole: answers it or begins to wait. */
enum MHD_Result routes_dispatch(struct exchange *exchange);
/* Goes on with an exchange that was resumed. */
enum MHD_Result routes_continue(struct exchange *exchange);

#endif
