package tune

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// knob is a key of the configuration with the values to try.
type knob struct {
	key     string
	present string // its value in the present configuration
	values  []value
}

// value is a value to try, which set puts into a configuration that shares nothing with another.
type value struct {
	text string
	set  func(*config.Config)
}

// knobs lists what can be tuned where the pools overlap, or where each has CPUs of its own.
func knobs(c *config.Config) []knob {
	if c.Pools.Mode != config.Exclusive {
		batch := func(c *config.Config) *control.BatchConfig { return &c.Control.Batch }
		return []knob{
			number(c, "control.batch.thresholdPercent", func(c *config.Config) *int { return &batch(c).ThresholdPercent }, 50, 60, 65, 70, 75, 80, 85, 90, 95, 100),
			number(c, "control.batch.growPercent", func(c *config.Config) *int { return &batch(c).GrowPercent }, 5, 10, 20, 40),
		}
	}
	var all []knob
	for i := range len(c.Pools.List) - 1 {
		at := "pools.list[" + strconv.Itoa(i) + "]."
		all = append(all,
			band(c, at+"band", func(c *config.Config) *config.Band { return &c.Pools.List[i].Band },
				config.Band{Low: 30, High: 50}, config.Band{Low: 45, High: 60}, config.Band{Low: 50, High: 70}, config.Band{Low: 60, High: 75}, config.Band{Low: 65, High: 80}, config.Band{Low: 75, High: 90}),
			band(c, at+"rcf", func(c *config.Config) *config.Band { return &c.Pools.List[i].RCF },
				config.Band{High: 200}, config.Band{High: 100}, config.Band{High: 75}, config.Band{Low: 25, High: 200}, config.Band{Low: 50, High: 200}))
	}
	return append(all,
		duration(c, "control.pools.slowWindow", func(c *config.Config) *time.Duration { return &c.Control.Pools.SlowWindow },
			10*time.Second, 20*time.Second, 30*time.Second, time.Minute, 2*time.Minute, 4*time.Minute),
		duration(c, "control.pools.shrinkPause", func(c *config.Config) *time.Duration { return &c.Control.Pools.ShrinkPause },
			2*time.Second, 5*time.Second, 10*time.Second, 30*time.Second))
}

func number(c *config.Config, key string, at func(*config.Config) *int, values ...int) knob {
	return newKnob(c, key, at, strconv.Itoa, values)
}

func duration(c *config.Config, key string, at func(*config.Config) *time.Duration, values ...time.Duration) knob {
	return newKnob(c, key, at, time.Duration.String, values)
}

func band(c *config.Config, key string, at func(*config.Config) *config.Band, values ...config.Band) knob {
	return newKnob(c, key, at, func(b config.Band) string {
		if b == (config.Band{}) {
			return "default"
		}
		return fmt.Sprintf("%d-%d%%", b.Low, b.High)
	}, values)
}

func newKnob[T comparable](c *config.Config, key string, at func(*config.Config) *T, text func(T) string, values []T) knob {
	present := *at(c)
	k := knob{key: key, present: text(present)}
	for _, v := range values {
		if v != present {
			k.values = append(k.values, value{text(v), func(c *config.Config) { *at(c) = v }})
		}
	}
	return k
}

// choice is a candidate: for each knob the number of its value, from 1; 0 is the present value.
type choice []int

func (c choice) with(knob, value int) choice {
	c = slices.Clone(c)
	c[knob] = value
	return c
}

// Setting is a key with a value that differs from the present one.
type Setting struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// settings lists what a candidate changes.
func (t *tuner) settings(c choice) []Setting {
	all := []Setting{}
	for i, k := range t.knobs {
		if v := c[i]; v > 0 {
			all = append(all, Setting{k.key, k.present, k.values[v-1].text})
		}
	}
	return all
}

// configure returns the present configuration with what a candidate changes.
func (t *tuner) configure(c choice) *config.Config {
	out := *t.present
	out.Pools.List = slices.Clone(out.Pools.List)
	for i, k := range t.knobs {
		if v := c[i]; v > 0 {
			k.values[v-1].set(&out)
		}
	}
	return &out
}
