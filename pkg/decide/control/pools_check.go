package control

import (
	"fmt"
	"time"
)

// limits collects the values that are out of range.
type limits []Problem

func (l *limits) percent(key string, value, least, most int) {
	if value < least || value > most {
		*l = append(*l, Problem{key, fmt.Sprintf("%d: must be %d to %d (percent)", value, least, most)})
	}
}

func (l *limits) number(key string, value, least, most int) {
	if value < least || value > most {
		*l = append(*l, Problem{key, fmt.Sprintf("%d: must be %d to %d", value, least, most)})
	}
}

func (l *limits) time(key string, value, least, most time.Duration) {
	if value < least || value > most {
		*l = append(*l, Problem{key, fmt.Sprintf("%s: must be %s to %s", value, least, most)})
	}
}

const (
	mostCPUs = 8192 // the kernel's own bound (CONFIG_NR_CPUS)
	mostRCF  = 1000
)

// Check returns what is wrong with the numbers of the pools' rules.
func (c *PoolsConfig) Check() []Problem {
	var l limits
	l.time("slowWindow", c.SlowWindow, time.Second, time.Hour)
	l.number("shrinkAfter", c.ShrinkAfter, 1, 1000)
	l.time("shrinkPause", c.ShrinkPause, 0, time.Hour)
	l.time("newPodTime", c.NewPodTime, 0, time.Hour)
	l.number("growCPUs", c.GrowCPUs, 1, mostCPUs)
	l.percent("growPercent", c.GrowPercent, 0, 100)
	l.number("shrinkCPUs", c.ShrinkCPUs, 1, mostCPUs)
	l.percent("shrinkPercent", c.ShrinkPercent, 0, 100)
	return l
}

// Check returns what is wrong with the numbers of one pool.
func (c *PoolConfig) Check() []Problem {
	var l limits
	l.percent("low", c.Low, 1, 99)
	l.percent("high", c.High, c.Low+1, 100)
	l.percent("rcfMin", c.RCFMin, 0, mostRCF)
	if c.RCFMax != 0 {
		l.percent("rcfMax", c.RCFMax, max(c.RCFMin, 1), mostRCF)
	}
	l.number("min", c.Min, 0, mostCPUs)
	return l
}

// Check returns what is wrong with the numbers of the budget.
func (c *BatchConfig) Check() []Problem {
	var l limits
	l.percent("thresholdPercent", c.ThresholdPercent, 0, 100)
	l.percent("floorPercent", c.FloorPercent, 0, 100)
	l.number("floorCPUs", c.FloorCPUs, 1, mostCPUs)
	l.percent("growPercent", c.GrowPercent, 1, 100)
	l.percent("onlineWeight", c.OnlineWeight, 0, 10000)
	return l
}
