package cgroupfs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
)

// Reading gives up on a container that makes very many cgroups.
func TestManyNestedCgroups(t *testing.T) {
	t.Parallel()
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		k := fakekernel.New(f)
		for n := range 2500 {
			k.Mkdir(fmt.Sprintf("/kubepods/pod1/many/%d", n))
		}
		k.Mkdir("/kubepods/pod1/few/a/b")
		d, err := k.Driver()
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if _, err := d.Processes("/kubepods/pod1/few"); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if _, err := d.Processes("/kubepods/pod1/gone"); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if _, err := d.Processes("/kubepods/pod1/many"); err == nil || !strings.Contains(err.Error(), "more than 2048 cgroups") {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

// The threads of nested cgroups are a container's, too, and one of another PID namespace shows.
func TestAllThreads(t *testing.T) {
	t.Parallel()
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		k := fakekernel.New(f)
		for dir, threads := range map[string][]int{"/kubepods/pod1/c": {7, 0}, "/kubepods/pod1/c/a": {9}, "/kubepods/pod1/d": {11}} {
			k.Mkdir(dir)
			k.Count(dir, fakekernel.Counters{Threads: threads})
		}
		d, err := k.Driver()
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if tids, err := d.AllThreads("/kubepods/pod1/c"); err != nil || !slices.Equal(tids, []int{7, 0, 9}) {
			t.Errorf("%s: %v, %v", f.Name, tids, err)
		}
		if tids, err := d.AllThreads("/kubepods/pod1/gone"); err != nil || tids != nil {
			t.Errorf("%s: %v, %v", f.Name, tids, err)
		}
	}
}
