package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
)

func TestIOCost(t *testing.T) {
	t.Parallel()
	parse := func(text string) *IOCost {
		t.Helper()
		c, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return &c.IOCost
	}
	nvme, sda, bfq := iocost.Disk{Name: "nvme0n1"}, iocost.Disk{Name: "sda", Rotational: true}, iocost.Disk{Name: "sdb", Scheduler: "bfq"}
	fast, hdd := iocost.Default(false), iocost.Default(true)
	fast.ReadLatency, fast.ReadPercent, fast.Min, fast.Max = 2000, 99_00, 50_00, 150_00
	slow := hdd
	slow.WriteLatency, slow.WritePercent = 500_000, 90_00
	const some = "ioCost: {mode: on, disks: [{name: nvme*, readLatency: 2ms, readPercentile: 99, minPercent: 50, maxPercent: 150}, {name: sda, writeLatency: 500ms, writePercentile: 90}, {name: nvme0n1}]}"
	if got, want := parse(some).Disks[0], (IOCostDisk{Name: "nvme*", ReadLatency: 2 * time.Millisecond, ReadPercentile: 99, MinPercent: 50, MaxPercent: 150}); !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v", got)
	}
	for _, test := range []struct {
		text string
		disk iocost.Disk
		want iocost.QoS // the zero value: it is left alone
	}{
		{"", nvme, iocost.QoS{}},
		{"ioCost: {mode: off, disks: [{name: '*'}]}", nvme, iocost.QoS{}},
		{"ioCost: {mode: on}", nvme, iocost.Default(false)},
		{"ioCost: {mode: on}", sda, hdd},
		{"ioCost: {mode: on}", bfq, iocost.QoS{}},
		{some, nvme, fast},
		{some, sda, slow},
		{some, iocost.Disk{Name: "vda"}, iocost.QoS{}},
	} {
		if got, ok := parse(test.text).QoS(test.disk); ok != test.want.Enabled || ok && got != test.want {
			t.Errorf("%s of %s: %+v, %v", test.text, test.disk.Name, got, ok)
		}
	}
}

func TestIOCostErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mode: auto":                                `ioCost.mode: "auto": must be on or off`,
		"disks: [{readLatency: 5ms}]":               `ioCost.disks[0]: is for no disk; give it a name, for all disks name: "*"`,
		"disks: [{name: '['}]":                      "ioCost.disks[0].name: \"[\": is not a pattern",
		"disks: [{name: sda, readLatency: 5us}]":    "ioCost.disks[0].readLatency: 5µs: must be 100µs to 10s",
		"disks: [{name: sda, writeLatency: 11s}]":   "ioCost.disks[0].writeLatency: 11s: must be 100µs to 10s",
		"disks: [{name: sda, readPercentile: 100}]": "ioCost.disks[0].readPercentile: 100: must be 50 to 99",
		"disks: [{name: sda, writePercentile: 9}]":  "ioCost.disks[0].writePercentile: 9: must be 50 to 99",
		"disks: [{name: sda, minPercent: -1}]":      "ioCost.disks[0].minPercent: -1: must be 1 to 10000",
		"disks: [{name: sda, maxPercent: 20}]":      "ioCost.disks[0].maxPercent: 20: must be at least minPercent, which is 25",
		"disks: [{name: sda, latency: 20ms}]":       "ioCost.disks[0].latency: is not a key that Sluice knows",
		"disks: [{name: /dev/nvme0n1}]":             "ioCost.disks[0].name: \"/dev/nvme0n1\": must be a name in /sys/block, such as nvme0n1",
		"disks: [{name: sda}, {name: a/b/\\}]":      "ioCost.disks[1].name",
	} {
		if _, err := Parse([]byte("ioCost: {" + text + "}")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
