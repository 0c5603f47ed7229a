package doctor

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

func TestDisks(t *testing.T) {
	t.Parallel()
	nvme, sda := iocost.Disk{Name: "nvme0n1", Number: "259:0", Scheduler: "none"}, iocost.Disk{Name: "sda", Number: "8:0", Scheduler: "bfq"}
	on := map[string]iocost.QoS{"259:0": {Enabled: true}}
	for name, test := range map[string]struct {
		disks  []iocost.Disk
		cost   map[string]iocost.QoS
		err    error
		config string
		level  Level
		want   string // in what and do
	}{
		"io.cost is off":    {disks: []iocost.Disk{sda, nvme}, level: Note, want: "no effect on nvme0n1: io.cost is off there, and the scheduler is not bfq|ioCost: {mode: on}"},
		"all have one":      {disks: []iocost.Disk{sda, nvme}, cost: on, want: "have an effect on nvme0n1, sda, by io.cost or bfq"},
		"no io.cost at all": {disks: []iocost.Disk{nvme}, err: errors.New("not supported here: io.cost is part of cgroup v2"), level: Note, want: "cgroup v2|the bfq scheduler"},
		"another is named":  {disks: []iocost.Disk{nvme}, config: "ioCost: {mode: on, disks: [{name: sd*}]}", level: Note, want: "no effect on nvme0n1|name nvme0n1 in ioCost.disks"},
		"in preview":        {disks: []iocost.Disk{nvme}, config: "mode: preview\nioCost: {mode: on}", level: Note, want: "no effect on nvme0n1|Sluice changes nothing in preview|mode: on"},
		"it is to be on":    {disks: []iocost.Disk{nvme}, config: "ioCost: {mode: on}", level: Warn, want: "although the configuration has|start the plugin"},
	} {
		f := facts(fstest.MapFS{}, mainlineV2())
		f.Disks, f.IOCost, f.IOCostErr = test.disks, test.cost, test.err
		if test.config != "" {
			var err error
			if f.Config, err = config.Parse([]byte(test.config)); err != nil {
				t.Fatal(err)
			}
		}
		expectOne(t, name, (&node{Facts: f}).disks(), test.level, test.want)
	}
	f := facts(fstest.MapFS{}, has(true, map[knobs.Knob]string{knobs.Weight: "cpu.weight"}))
	f.Disks = []iocost.Disk{nvme}
	if got := (&node{Facts: f}).disks(); got != nil {
		t.Errorf("without weights: %+v", got)
	}
}

func TestIdleIO(t *testing.T) {
	t.Parallel()
	sda, sdb, nvme := iocost.Disk{Name: "sda", Scheduler: "mq-deadline"}, iocost.Disk{Name: "sdb", Scheduler: "bfq"}, iocost.Disk{Name: "nvme0n1", Scheduler: "none"}
	for want, disks := range map[string][]iocost.Disk{
		"an effect on sda, by mq-deadline": {nvme, sda},
		"no effect here":                   {nvme, sdb},
		"":                                 nil,
	} {
		f := facts(fstest.MapFS{}, mainlineV2())
		f.Disks = disks
		got := (&node{Facts: f}).idleIO()
		if want == "" {
			if got != nil {
				t.Errorf("without disks: %+v", got)
			}
			continue
		}
		if len(got) != 1 || got[0].Level != OK || !strings.Contains(got[0].What, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}
