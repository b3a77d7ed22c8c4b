/* The part of the suite about pages that peers read one-sidedly; cmocka tests over a struct world, listed in test_transport.c. */
#ifndef HEARSAY_CONFORM_PAGE_TESTS_H
#define HEARSAY_CONFORM_PAGE_TESTS_H

void test_pages(void **state);
void test_pages_published_again(void **state);
void test_pages_of_a_restarted_peer(void **state);
void test_reads_of_a_closed_peer(void **state);
void test_pages_under_a_writer(void **state);

#endif
