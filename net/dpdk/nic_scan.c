#include "net/dpdk/nic_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cards whose DPDK driver works beside the kernel's, through libibverbs; unbound they are lost to both. */
static bool stays_bound(const char *driver)
{
    return strcmp(driver, "mlx5_core") == 0 || strcmp(driver, "mlx4_core") == 0 || strcmp(driver, "mana") == 0;
}

static bool is_for_user_space(const char *driver)
{
    return strcmp(driver, "vfio-pci") == 0 || strcmp(driver, "igb_uio") == 0 || strcmp(driver, "uio_pci_generic") == 0;
}

/* Ethernet is class 0x0200.. of PCI. card: its folder. */
static bool is_network_card(int card)
{
    char class[8] = "";
    int file = openat(card, "class", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    bool read_it = read(file, class, sizeof class - 1) == sizeof class - 1;
    close(file);
    return read_it && strncmp(class, "0x0200", 6) == 0;
}

/* "" when it has none. */
static void driver_of(int card, char *driver, size_t size)
{
    char target[512];
    ssize_t len = readlinkat(card, "driver", target, sizeof target - 1);
    target[len > 0 ? len : 0] = '\0';
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    snprintf(driver, size, "%.*s", (int)size - 1, name);
}

static void describe(const char *card, const char *driver, char *text, size_t size)
{
    if (stays_bound(driver))
        snprintf(text, size,
                 "%s (%s) must stay with its kernel driver: do not unbind it, install its DPDK driver and libibverbs (ibverbs-providers)", card,
                 driver);
    else if (is_for_user_space(driver))
        snprintf(text, size, "%s is bound to %s, but DPDK did not take it: is --no-pci, -a or -b in --eal, or may this user not open /dev/vfio?",
                 card, driver);
    else if (*driver)
        snprintf(text, size, "%s is still bound to the kernel's %s: dpdk-devbind.py --bind=vfio-pci %s gives it to DPDK (and takes it from the "
                 "kernel)", card, driver, card);
    else
        snprintf(text, size, "%s has no driver: dpdk-devbind.py --bind=vfio-pci %s gives it to DPDK", card, card);
}

static int is_name(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

void nic_scan(const char *sys_root, char *text, size_t size)
{
    char folder[512];
    struct dirent **entries;
    *text = '\0';
    snprintf(folder, sizeof folder, "%s/bus/pci/devices", sys_root);
    int n = scandir(folder, &entries, is_name, alphasort), all = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < n; i++) {
        char driver[64];
        int card = *text == '\0' ? openat(all, entries[i]->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        if (card >= 0 && is_network_card(card)) {
            driver_of(card, driver, sizeof driver);
            describe(entries[i]->d_name, driver, text, size);
        }
        if (card >= 0)
            close(card);
        free(entries[i]);
    }
    if (all >= 0)
        close(all);
    if (n >= 0)
        free(entries);
}
