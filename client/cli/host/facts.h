/* SPDX-License-Identifier: Apache-2.0
 *
 * What `belay check-host` knows of a machine. Every fact carries how it came to be known: what
 * could not be read is not zero, it is not known, and a judgement has to say so.
 */
#ifndef BELAY_CLI_HOST_FACTS_H
#define BELAY_CLI_HOST_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HOST_CPUS_MAX = 1024,      /* CPUs of a machine; higher numbers garble the file that has them */
    HOST_CORES_MAX = 256,      /* that can be asked about with --cores */
    HOST_NODES_MAX = 64,       /* NUMA nodes */
    HOST_IDLE_STATES_MAX = 16, /* per core */
    HOST_INTERRUPTS_MAX = 4096, /* rows of /proc/interrupts that are looked at */
    HOST_WORD_BYTES = 64,
    HOST_NAMES_BYTES = 128,
    HOST_PATH_BYTES = 512,
};

enum host_state {
    HOST_NOT_ASKED = 0, /* nobody looked: the option it belongs to was not given */
    HOST_KNOWN = 1,
    HOST_MISSING = 2, /* there is no such file */
    HOST_DENIED = 3,
    HOST_FAILED = 4,  /* it cannot be read for another reason */
    HOST_GARBLED = 5, /* it was read, and is not what the kernel writes there */
    HOST_HIDDEN = 6,  /* a container shows its own processes only */
};

struct host_cpus {
    uint64_t words[HOST_CPUS_MAX / 64];
};

struct host_number {
    uint8_t state; /* enum host_state */
    int64_t value; /* HOST_UNLIMITED where the kernel says "unlimited" */
};
#define HOST_UNLIMITED INT64_MAX

/* A kernel's release as a number that grows with it. */
#define HOST_RELEASE(major, minor) ((int64_t)(major)*100000 + (minor))

struct host_word {
    uint8_t state; /* enum host_state */
    char text[HOST_WORD_BYTES];
};

struct host_set {
    uint8_t state; /* enum host_state */
    struct host_cpus cpus;
};

/* The kernel's command line, as far as it concerns belayd. */
struct host_cmdline {
    uint8_t state;             /* enum host_state */
    struct host_cpus isolated; /* isolcpus= with the flag `domain`, which is the default */
    struct host_cpus nohz_full;
    struct host_cpus rcu_nocbs; /* with nohz_full's, which implies it */
    bool managed_irq;           /* isolcpus=managed_irq,... */
    bool iommu_on;              /* intel_iommu=on or amd_iommu=on */
    bool iommu_off;             /* intel_iommu=off, amd_iommu=off or iommu=off */
    bool iommu_passthrough;     /* iommu=pt or iommu.passthrough=1 */
    bool hugepages;             /* hugepages= stands there: they are reserved at boot */
    bool machine_checks_quiet;  /* mce=ignore_ce */
};

struct host_core {
    uint16_t cpu;
    struct host_set siblings;
    struct host_word governor;
    struct host_number idle_latency_us; /* of the slowest idle state that is not disabled */
    char idle_name[HOST_WORD_BYTES];
};

struct host_node {
    bool present;
    struct host_set cpus;
    struct host_number hugepages_2m;
    struct host_number hugepages_1g;
};

struct host_memory {
    struct host_number hugepages_total; /* of the default size */
    struct host_number hugepages_free;
    struct host_number hugepage_kib;
    struct host_number swap_total_kib;
    struct host_number swap_free_kib;
    struct host_number swappiness;
    struct host_word transparent;
    struct host_number numa_balancing;
    struct host_number locked_bytes; /* soft limit of this process, as its shell has it */
    struct host_number files;        /* the same */
    uint8_t nodes_state;             /* enum host_state */
    struct host_node nodes[HOST_NODES_MAX];
};

struct host_interrupts {
    uint8_t state;                /* enum host_state, of /proc/interrupts */
    uint32_t seen;                /* interrupts that somebody handles */
    uint32_t unknown;             /* of them: those whose affinity could not be read */
    uint8_t unknown_state;        /* why, of the first */
    uint32_t touching;            /* of them: those that may be delivered to the cores */
    char names[HOST_NAMES_BYTES]; /* the first few of these: "24 nvme0q1, 25 eth0-rx-0" */
    struct host_set default_affinity;
    struct host_number balancer; /* processes named irqbalance */
};

struct host_device {
    bool asked;
    bool is_pci;                        /* named by its PCI address, else by its interface */
    char name[HOST_WORD_BYTES];         /* as it was given */
    struct host_word address;           /* of PCI */
    struct host_word driver;            /* "" = none is bound */
    struct host_word iommu_group;       /* "" = it is in none */
    struct host_number group_others;    /* devices in the group without a driver of user space */
    char group_names[HOST_NAMES_BYTES]; /* the first few of these */
    struct host_number numa_node;       /* -1 = the platform does not say */
    struct host_number mtu;
};

struct host_card {
    struct host_device device;
    struct host_number vfio_pci; /* 1 = the module is there, or built in */
    struct host_number uio;      /* uio_pci_generic or igb_uio */
    struct host_number iommu_groups;
    struct host_word no_iommu; /* vfio's parameter: Y or N */
};

struct host_disk {
    bool asked;
    char path[HOST_PATH_BYTES];
    struct host_word filesystem;
    struct host_word source;
    struct host_word write_cache;
    struct host_word scheduler;
    struct host_number rotational;
};

struct host_facts {
    bool cores_given; /* by --cores; else they are those that are isolated */
    struct host_cpus cores;
    size_t cores_count;
    struct host_core core[HOST_CORES_MAX];
    struct host_set online;
    struct host_cmdline cmdline;
    struct host_memory memory;
    struct host_interrupts interrupts;
    struct host_word clocksource;
    struct host_number rt_runtime_us;
    struct host_number nmi_watchdog;
    struct host_number io_uring_disabled;
    struct host_number release; /* HOST_RELEASE() of the kernel */
    struct host_number rmem_max;
    struct host_number wmem_max;
    struct host_card card;
    struct host_disk disk;
};

/* ---- sets of CPUs ---------------------------------------------------------------------------- */

static inline void host_cpus_add(struct host_cpus *set, size_t cpu)
{
    set->words[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static inline bool host_cpus_has(const struct host_cpus *set, size_t cpu)
{
    return cpu < HOST_CPUS_MAX && (set->words[cpu / 64] >> cpu % 64 & 1) != 0;
}

size_t host_cpus_count(const struct host_cpus *set);
bool host_cpus_meet(const struct host_cpus *one, const struct host_cpus *other);
struct host_cpus host_cpus_without(const struct host_cpus *one, const struct host_cpus *other);

/* "2-3,8", cut with "..." where it does not fit; "none" for the empty set. Returns `text`. */
const char *host_cpus_text(const struct host_cpus *set, char *text, size_t text_bytes);

#endif
