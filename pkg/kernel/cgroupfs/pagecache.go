package cgroupfs

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

const (
	cacheSize   = "memory.pagecache_limit.size"
	cacheEnable = "memory.pagecache_limit.enable"
)

// pageCacheSpec limits the page cache on Anolis (5.10.134-14), which has a size, where 0 means
// none, and a switch for each cgroup. memory.pagecache_limit.sync stays 0, so that the kernel
// reclaims in the background and not in the allocating task.
var pageCacheSpec = Spec{
	Controller: "memory", V1: []string{cacheSize}, V2: []string{cacheSize}, Default: knobs.Max, ReadBack: Rounded,
	Gate: "sys/kernel/mm/pagecache_limit/enabled",
	test: knobs.Bytes(64 << 20), read: readPageCache, write: writePageCache, same: sameBytes,
}

func readPageCache(c *cgroup, _ *Spec) (knobs.Value, error) {
	on, err := c.readCached(cacheEnable)
	if err != nil {
		return nil, err
	}
	size, err := c.bytes(cacheSize)
	if err != nil {
		return nil, err
	}
	if on == "0" || size == 0 {
		return knobs.Max, nil
	}
	return size, nil
}

// writePageCache switches the limit on after it has written the size, and off before, so that
// no other limit is in force in between.
func writePageCache(c *cgroup, _ *Spec, to knobs.Change) error {
	b, _ := to.To.(knobs.Bytes)
	if b == 0 {
		return errors.New("a page cache limit of 0 is none to the kernel: use max, or at least a page")
	}
	if b < 0 {
		if err := c.write(cacheEnable, "0"); err != nil {
			return err
		}
		return c.write(cacheSize, "0")
	}
	if err := c.write(cacheSize, bytesText(b, "0")); err != nil {
		return err
	}
	return c.write(cacheEnable, "1")
}
