package boot

import (
	"slices"
	"testing"
)

func TestParseTopology(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Topology{
		"2x2x2":  {Sockets: 2, Dies: 2, Cores: 2, Threads: 2},
		"1x1x1":  {Sockets: 1, Dies: 1, Cores: 1, Threads: 2},
		"2x4x15": {Sockets: 2, Dies: 4, Cores: 15, Threads: 2},
	} {
		got, err := ParseTopology(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s is read as %v (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "2x2", "2x2x2x2", "2x2x2 ", "0x1x1", "2x-1x2", "axbxc", "2x8x8"} {
		if got, err := ParseTopology(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestTopologyFlags(t *testing.T) {
	t.Parallel()
	got := Topology{Sockets: 1, Dies: 2, Cores: 4, Threads: 2}.flags()
	want := []string{
		"-m", "2048M",
		"-smp", "16,sockets=1,dies=2,cores=4,threads=2",
		"-object", "memory-backend-ram,id=m0,size=1024M", "-numa", "node,nodeid=0,memdev=m0",
		"-object", "memory-backend-ram,id=m1,size=1024M", "-numa", "node,nodeid=1,memdev=m1",
		"-numa", "cpu,node-id=0,socket-id=0,die-id=0",
		"-numa", "cpu,node-id=1,socket-id=0,die-id=1",
		"-numa", "dist,src=0,dst=1,val=12",
	}
	if !slices.Equal(got, want) {
		t.Errorf("flags are\n%q, want\n%q", got, want)
	}
	got = Topology{Sockets: 2, Dies: 1, Cores: 1, Threads: 1}.flags()
	want = []string{
		"-numa", "cpu,node-id=0,socket-id=0",
		"-numa", "cpu,node-id=1,socket-id=1",
		"-numa", "dist,src=0,dst=1,val=21",
	}
	if !slices.Equal(got[len(got)-len(want):], want) {
		t.Errorf("flags end in\n%q, want\n%q", got, want)
	}
}
