/* The parts of api_request_parse; each fills the request and leaves an error in fields. */
#ifndef HEARSAY_SERVE_HTTP_API_REQUEST_INTERNAL_H
#define HEARSAY_SERVE_HTTP_API_REQUEST_INTERNAL_H

#include "core/serve/http/api_request.h"
#include "core/serve/http/json_fields.h"

void api_request_read_prompts(struct api_request *request, struct json_fields *fields, const struct api_limits *limits);
void api_request_read_messages(struct api_request *request, struct json_fields *fields);
/* Ids of a JSON array of numbers under the given field name; NULL after an error. */
uint32_t *api_request_read_ids(struct json_fields *fields, const char *name, const json_t *array, const struct api_limits *limits);
void api_request_read_sampling(struct api_request *request, struct json_fields *fields, const struct api_limits *limits);
/* A 400 for every feature that is asked for and not there. */
void api_request_refuse_absent(const struct api_request *request, struct json_fields *fields);

#endif
