package control

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// problems collects mistakes in the configuration.
type problems []Problem

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, Problem{key, fmt.Sprintf(format, args...)})
}

// Check returns what is wrong with the configuration of batch work's memory.
func (c *MemoryConfig) Check() []Problem {
	var p problems
	p.percent("safePercent", c.SafePercent, 1, 100)
	p.percent("evictPercent", c.EvictPercent, 1, 100)
	p.percent("headroomPercent", c.HeadroomPercent, 1, 50)
	p.percent("evictMarginPercent", c.EvictMarginPercent, 0, 50)
	if c.SwapMBps < 0 || c.SwapMBps > mostSwapMBps {
		p.add("swapMBps", "%d: must be 0 to %d (MiB per second)", c.SwapMBps, mostSwapMBps)
	}
	if c.SafePercent >= c.EvictPercent-c.EvictMarginPercent {
		p.add("safePercent", "%d: must be below %d, which is evictPercent less evictMarginPercent: batch would be given memory that it is evicted for",
			c.SafePercent, c.EvictPercent-c.EvictMarginPercent)
	}
	return p
}

// Check returns what is wrong with the configuration of eviction.
func (c *EvictionConfig) Check() []Problem {
	var p problems
	if c.Socket != "" && !path.IsAbs(c.Socket) {
		p.add("socket", "%.80q: must be an absolute path, or empty to look in the usual places", c.Socket)
	}
	p.duration("cpuPause", c.CPUPause, time.Second, time.Hour)
	p.duration("memoryPause", c.MemoryPause, time.Second, time.Hour)
	p.duration("coolDown", c.CoolDown, time.Second, 24*time.Hour)
	p.duration("satisfactionWindow", c.SatisfactionWindow, time.Second, 24*time.Hour)
	p.percent("satisfactionPercent", c.SatisfactionPercent, 0, 100)
	p.evictions("maxPerHour", c.MaxPerHour)
	p.evictions("maxPerOwnerPerHour", c.MaxPerOwnerPerHour)
	return p
}

func (p *problems) evictions(key string, value int) {
	if value < 0 || value > 10_000 {
		p.add(key, "%d: must be 0 to 10000 evictions an hour; 0 sets no bound", value)
	}
}

// CheckRules returns what is wrong with the rules on a node with these pools. Keys have the
// form "[0].metric".
func CheckRules(rules []Rule, pools []string) []Problem {
	var p problems
	for i := range rules {
		c, at := &rules[i], fmt.Sprintf("[%d]", i)
		if c.Name == "" {
			p.add(at+".name", "is missing; decisions and the log name the rule by it")
		} else if slices.ContainsFunc(rules[:i], func(r Rule) bool { return r.Name == c.Name }) {
			p.add(at+".name", "%.80q is there twice", c.Name)
		}
		if _, err := parseMetric(c.Metric, pools); err != nil {
			p.add(at+".metric", "%.80q: %v", c.Metric, err)
		}
		if c.Watermark < 1 || c.Watermark > 10000 {
			p.add(at+".watermark", "%d: must be 1 to 10000, in percent", c.Watermark)
		}
		p.count(at+".triggerAfter", c.TriggerAfter)
		p.count(at+".restoreAfter", c.RestoreAfter)
		p.duration(at+".coolDown", c.CoolDown, 0, 24*time.Hour)
		c.checkAction(at, &p)
	}
	return p
}

func (c *Rule) checkAction(at string, p *problems) {
	if c.Action == "" {
		p.add(at+".action", "is missing; it must be refuse, throttle, reclaim or evict")
		return
	}
	steps := c.Action == RuleThrottle || c.Action == RuleReclaim
	if steps {
		p.percent(at+".stepPercent", c.StepPercent, 1, 90)
	} else if c.StepPercent != 0 {
		p.add(at+".stepPercent", "is for throttle and reclaim; remove it, or choose throttle or reclaim")
	}
	if c.Action == RuleThrottle {
		p.percent(at+".floorPercent", c.FloorPercent, 0, 100)
	} else if c.FloorPercent != 0 {
		p.add(at+".floorPercent", "is for throttle; take it away, or choose that action")
	}
	if c.Action == RuleEvict {
		p.duration(at+".grace", c.Grace, 0, time.Hour)
	} else if c.Grace != 0 {
		p.add(at+".grace", "is for evict; take it away, or choose that action")
	}
}

// CheckWindows returns what is wrong with the windows on a node with these pools. Keys have the form
// "[0].from".
func CheckWindows(windows []Window, pools []string) []Problem {
	var p problems
	for i := range windows {
		c, at := &windows[i], fmt.Sprintf("[%d]", i)
		from, err := parseMinute(c.From)
		if err != nil || from == dayMinutes {
			p.add(at+".from", "%.80q: %v", c.From, errTime)
		}
		if to, err := parseMinute(c.To); err != nil {
			p.add(at+".to", "%.80q: %v", c.To, errTime)
		} else if c.To == c.From || from == to {
			p.add(at+".to", "%.80q: is where the window begins; for a whole day write from 00:00 to 24:00", c.To)
		}
		for k, name := range c.Days {
			var days [7]bool
			if err := parseDay(name, &days); err != nil {
				p.add(fmt.Sprintf("%s.days[%d]", at, k), "%v", err)
			}
		}
		for label, glob := range c.Labels {
			if _, err := path.Match(glob, ""); err != nil {
				p.add(at+".labels."+label, `%.80q: is not a pattern; *, ? and [a-z] stand for letters, and \ takes away their meaning`, glob)
			}
		}
		c.When.check(at+".when", pools, &p)
		p.duration(at+".grace", c.Grace, 0, 12*time.Hour)
		p.percent(at+".percent", c.Percent, 0, 99)
		if c.Percent > 0 && c.Evict {
			p.add(at+".evict", "goes with percent 0: a window that leaves batch a part of its CPUs evicts nobody")
		}
		if c.Percent > 0 && c.Grace > 0 {
			p.add(at+".grace", "goes with percent 0: a window that leaves batch a part of its CPUs takes new BE too")
		}
	}
	return p
}

func (c *WindowWhen) check(at string, pools []string, p *problems) {
	if *c == (WindowWhen{}) {
		return
	}
	if _, err := parseMetric(c.Metric, pools); err != nil {
		p.add(at+".metric", "%.80q: %v", c.Metric, err)
	} else if !strings.HasSuffix(c.Metric, predicted) {
		p.add(at+".metric", "%.80q: must be a forecast, such as node.cpu%s; a rule acts by what is measured now", c.Metric, predicted)
	}
	p.percent(at+".above", c.Above, 1, 10000)
}

func (p *problems) percent(key string, value, least, most int) {
	if value < least || value > most {
		p.add(key, "%d: must be %d to %d, in percent", value, least, most)
	}
}

func (p *problems) count(key string, value int) {
	if value < 0 || value > 10000 {
		p.add(key, "%d: must be 0 to 10000 samples; 0 is 1", value)
	}
}

func (p *problems) duration(key string, value, least, most time.Duration) {
	if value < least || value > most {
		p.add(key, "%v: must be %v to %v", value, least, most)
	}
}
