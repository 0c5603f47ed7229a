package fakekernel

import (
	"strconv"
	"strings"
	"syscall"
)

// unlimited1 is v1's value for no limit: PAGE_COUNTER_MAX in bytes.
const unlimited1 = 9223372036854771712

// amount implements memparse and page_counter_memparse: it accepts the suffixes K, M and G and
// rounds down to whole pages; word stands for no limit.
func amount(text, word string) (int64, error) {
	if text == word {
		return none, nil
	}
	unit := int64(1)
	if i := strings.IndexAny(text, "kKmMgG"); i >= 0 && i == len(text)-1 {
		unit = map[byte]int64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}[text[i]|0x20]
		text = text[:i]
	}
	n, err := strconv.ParseUint(text, 0, 63)
	if err != nil {
		return 0, syscall.EINVAL
	}
	if n >= unlimited1 {
		return none, nil
	}
	return int64(n) * unit / page * page, nil
}

// show1 formats an amount as the files of cgroup v1 do; show2 does so for cgroup v2.
func show1(n int64) string {
	if n < 0 {
		n = unlimited1
	}
	return strconv.FormatInt(n, 10)
}

func show2(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

func shown(show func(int64) string, at func(*group) *int64) func(*group) string {
	return func(g *group) string { return show(*at(g)) }
}

// within reports whether limit a is at most limit b.
func within(a, b int64) bool { return b < 0 || a >= 0 && a <= b }

func (f Flavour) memoryFiles(all map[string]file) {
	if f.V2 || f.Memory {
		for name, at := range map[string]func(*group) *int64{
			"memory.min": func(g *group) *int64 { return &g.minimum }, "memory.low": func(g *group) *int64 { return &g.low },
			"memory.high": func(g *group) *int64 { return &g.high },
		} {
			all[name] = file{show: shown(show2, at), store: store2(at)}
		}
		all["memory.oom.group"] = plain(func(g *group) *int64 { return &g.oomGroup }, 0, 1)
	}
	// A quarter of the cache is tmpfs, which the kernel counts in the lists of anonymous pages.
	stat := "cache %c\nrss %r\ntotal_cache %c\ntotal_rss %r\ntotal_inactive_file %h\ntotal_active_file %q\ntotal_workingset_refault_anon 0\ntotal_workingset_refault_file %f\ntotal_swap %s"
	if f.V2 {
		stat = "anon %r\nfile %c\nshmem %q\ninactive_file %h\nactive_file %q\nworkingset_refault_anon 0\nworkingset_refault_file %f\npgscan_direct %d"
	}
	all["memory.stat"] = file{root: true, show: func(g *group) string {
		text := func(n int64) string { return strconv.FormatInt(n, 10) }
		return strings.NewReplacer("%c", text(g.cache), "%r", text(g.usage-g.cache), "%h", text(g.cache/2), "%q", text(g.cache/4), "%f", text(g.counters.Refaults), "%d", text(g.counters.DirectScans), "%s", text(g.counters.Swapped)).Replace(stat)
	}}
	usage := file{root: !f.V2, show: shown(show1, func(g *group) *int64 { return &g.usage })}
	limit := func(g *group) *int64 { return &g.limit }
	if f.V2 {
		all["memory.current"] = usage
		all["memory.max"] = file{show: shown(show2, limit), store: store2(limit)}
		if !f.NoSwap {
			swap := func(g *group) *int64 { return &g.swapMax }
			all["memory.swap.max"] = file{show: shown(show2, swap), store: store2(swap)}
			all["memory.swap.current"] = file{show: shown(show1, func(g *group) *int64 { return &g.counters.Swapped })}
		}
		if f.Reclaim {
			all["memory.reclaim"] = file{store: reclaim}
		}
		return
	}
	all["memory.usage_in_bytes"] = usage
	swappiness := plain(func(g *group) *int64 { return &g.swappiness }, 0, 200)
	swappiness.root = true
	all["memory.swappiness"] = swappiness
	all["memory.limit_in_bytes"] = file{root: true, show: shown(show1, limit), store: storeLimit1}
	all["memory.memsw.limit_in_bytes"] = file{root: true, show: shown(show1, func(g *group) *int64 { return &g.swap }), store: storeSwap1}
	all["memory.soft_limit_in_bytes"] = file{root: true, show: shown(show1, func(g *group) *int64 { return &g.soft }), store: func(g *group, text string) error {
		n, err := amount(text, "-1")
		if err == nil {
			g.soft = n
		}
		return err
	}}
}

func store2(at func(*group) *int64) func(*group, string) error {
	return func(g *group, text string) error {
		n, err := amount(text, "max")
		if err == nil {
			*at(g) = n
		}
		return err
	}
}

// storeLimit1 implements mem_cgroup_resize_max of cgroup v1: the limit can't exceed the limit with
// swap, nor fall below the memory that can't be reclaimed, which here is everything but page
// cache.
func storeLimit1(g *group, text string) error {
	n, err := amount(text, "-1")
	switch {
	case err != nil:
		return err
	case g.parent == nil, !within(n, g.swap):
		return syscall.EINVAL
	case n >= 0 && g.usage-g.cache > n:
		return syscall.EBUSY
	}
	if n >= 0 && g.usage > n {
		g.cache -= g.usage - n
		g.usage = n
	}
	g.limit = n
	return nil
}

func storeSwap1(g *group, text string) error {
	n, err := amount(text, "-1")
	switch {
	case err != nil:
		return err
	case g.parent == nil, !within(g.limit, n):
		return syscall.EINVAL
	}
	g.swap = n
	return nil
}

// reclaim implements memory.reclaim: it frees page cache, and returns EAGAIN if there is less of
// it than requested.
func reclaim(g *group, text string) error {
	n, err := amount(text, "")
	if err != nil {
		return err
	}
	got := min(n, g.cache)
	g.cache -= got
	g.usage -= got
	if got < n {
		return syscall.EAGAIN
	}
	return nil
}

// vendorMemory adds the vendors' files.
func (f Flavour) vendorMemory(all map[string]file) {
	if f.Memory {
		all["memory.wmark_ratio"] = plain(func(g *group) *int64 { return &g.wmarkRatio }, 0, 100)
		all["memory.wmark_scale_factor"] = plain(func(g *group) *int64 { return &g.wmarkScale }, 1, 1000)
		minAdj := plain(func(g *group) *int64 { return &g.minAdj }, -25, 50)
		minAdj.show = func(g *group) string { return strconv.FormatInt(g.effectiveMinAdj(), 10) }
		all["memory.wmark_min_adj"] = minAdj
		all["memory.priority"] = plain(func(g *group) *int64 { return &g.memPriority }, 0, 12)
		all["memory.pagecache_limit.enable"] = plain(func(g *group) *int64 { return &g.cacheOn }, 0, 1)
		all["memory.pagecache_limit.sync"] = plain(func(g *group) *int64 { return &g.cacheSync }, 0, 1)
		size := func(g *group) *int64 { return &g.cacheSize }
		all["memory.pagecache_limit.size"] = file{show: shown(show2, size), store: func(g *group, text string) error {
			n, err := amount(text, "")
			if err != nil || !within(n, g.limit) {
				return syscall.EINVAL
			}
			g.cacheSize = n
			return nil
		}}
	}
	if f.Memory || f.RUE {
		all["memory.use_priority_oom"] = plain(func(g *group) *int64 { return &g.priorityOOM }, 0, 1)
	}
	if f.RUE {
		all["memory.oom.group"] = plain(func(g *group) *int64 { return &g.oomGroup }, 0, 1)
		all["memory.pagecache.max_ratio"] = plain(func(g *group) *int64 { return &g.cacheRatio }, 1, 100)
	}
	if f.QoSLevel {
		all["memory.qos_level"] = plain(func(g *group) *int64 { return &g.memQoS }, -1, 0, func(g *group, _ int64) error {
			if !g.in.kernel.on(MemoryQoSSwitch) {
				return syscall.EACCES
			}
			return nil
		})
	}
}

// effectiveMinAdj returns the highest value that is not 0 of a cgroup and its ancestors.
func (g *group) effectiveMinAdj() int64 {
	if g.minAdj == 0 {
		return 0
	}
	highest := g.minAdj
	for up := g.parent; up != nil; up = up.parent {
		if up.minAdj != 0 {
			highest = max(highest, up.minAdj)
		}
	}
	return highest
}
