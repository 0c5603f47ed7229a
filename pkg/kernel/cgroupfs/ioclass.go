package cgroupfs

import "github.com/sluice-dev/sluice/pkg/knobs"

// ioClassSpec is the policy for the priority class of a cgroup's I/O (block/blk-ioprio.c, Linux 5.14
// with CONFIG_BLK_CGROUP_IOPRIO). It applies to the cgroup's own I/O and write-back, not to that of
// cgroups below it.
var ioClassSpec = Spec{
	Controller: "io", V1: []string{"blkio.prio.class"}, V2: []string{"io.prio.class"},
	Default: knobs.SameIO, ReadBack: Exact,
	test: knobs.IdleIO, read: readIOClass, write: writeIOClass,
}

func readIOClass(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.readCached(s.Files(c.in.v2)...)
	if err != nil {
		return nil, err
	}
	v, err := knobs.ParseValue(knobs.IOClass, text)
	if err != nil {
		return nil, c.unreadable(s, text)
	}
	return v, nil
}

func writeIOClass(c *cgroup, s *Spec, to knobs.Change) error {
	policy, _ := to.To.(knobs.IOPolicy)
	return c.writeFirst(s.Files(c.in.v2), string(policy))
}
