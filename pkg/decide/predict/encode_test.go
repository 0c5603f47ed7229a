package predict

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fullSet has 500 workloads, the node and four pools, measured once a minute.
func fullSet(days int) (*Set, time.Time) {
	s, rng, now := NewSet(DefaultConfig()), rand.New(rand.NewPCG(1, 1)), begin
	keys := fullKeys()
	for range days * 24 * 60 {
		for _, key := range keys {
			usage := rng.Float64() * 4
			if key.Resource == Memory {
				usage *= 8 << 30
			}
			s.Add(now, key, usage)
		}
		now = now.Add(time.Minute)
	}
	return s, now
}

func fullKeys() []Key {
	keys := []Key{{Node, "", CPU}, {Node, "", Memory}}
	for _, pool := range []string{"critical", "online", "offline", "batch"} {
		keys = append(keys, Key{Pool, pool, CPU})
	}
	for i := range 500 {
		name := fmt.Sprintf("a-namespace-of-usual-length/a-deployment-of-usual-length-%d", i)
		keys = append(keys, Key{Workload, name, CPU}, Key{Workload, name, Memory})
	}
	return keys
}

func TestStateSurvivesARestart(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	s, key := NewSet(cfg), Key{Pool, "online", CPU}
	now := begin
	for i := range 4 * 24 * 60 {
		now = begin.Add(time.Duration(i) * time.Minute)
		s.Add(now, key, sine(24*60)(i))
		s.Search(now)
	}
	loaded, err := Decode(cfg, s.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if first, second := s.Encode(), loaded.Encode(); !bytes.Equal(first, second) {
		t.Error("a loaded set is saved in another form")
	}
	if got := loaded.Forecast(now, key, time.Hour); got.Trusted {
		t.Errorf("a forecast without a measurement since the start: %+v", got)
	}
	now = now.Add(time.Minute)
	loaded.Add(now, key, 2)
	s.Add(now, key, 2)
	was, is := s.Forecast(now, key, time.Hour), loaded.Forecast(now, key, time.Hour)
	if !was.Trusted || !reflect.DeepEqual(was, is) {
		t.Errorf("before the restart %+v, after it %+v", was, is)
	}
	if got := loaded.series[key].Period(); got != 24*time.Hour {
		t.Errorf("period %v", got)
	}
}

func TestCorruptStateIsRefused(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	s := NewSet(cfg)
	for i := range 200 {
		s.Add(begin.Add(time.Duration(i)*time.Minute), Key{Node, "", CPU}, 3)
	}
	good := s.Encode()
	for name, c := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"empty":     {func([]byte) []byte { return nil }, "no saved forecast"},
		"text":      {func([]byte) []byte { return []byte(strings.Repeat("x", 100)) }, "no saved forecast"},
		"one bit":   {func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "checksum"},
		"cut":       {func(b []byte) []byte { return b[:len(b)-100] }, "checksum"},
		"cut short": {func(b []byte) []byte { return sealed(b[:len(b)-104]) }, "ends early"},
		"version":   {func(b []byte) []byte { b[len(mark)] = 9; return sealed(b[:len(b)-4]) }, "version 9"},
		"kind":      {func(b []byte) []byte { b[len(mark)+2] = 9; return sealed(b[:len(b)-4]) }, "unknown"},
	} {
		if _, err := Decode(cfg, c.change(bytes.Clone(good))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestStateIsSmall(t *testing.T) {
	t.Parallel()
	s, _ := fullSet(1)
	for _, m := range s.order { // as after two weeks, without measuring them
		last := m.history.last
		for step := last - int64(len(m.history.values)) + 2; step <= last+1; step++ {
			if step == last-int64(len(m.history.values))+2 {
				m.history.clear()
			}
			m.history.enter(step, 1.5)
		}
	}
	size := len(s.Encode())
	t.Logf("the state of %d series takes %.2f MiB", s.Len(), float64(size)/(1<<20))
	if size > 4<<20 {
		t.Errorf("the state takes %d bytes", size)
	}
}

// Whatever is read, it is refused or can be used and saved again.
func FuzzDecode(f *testing.F) {
	cfg := DefaultConfig()
	s := NewSet(cfg)
	for i := range 200 {
		now := begin.Add(time.Duration(i) * time.Minute)
		s.Add(now, Key{Node, "", CPU}, 3)
		s.Add(now, Key{Workload, "shop/web", Memory}, 1e9)
	}
	good := s.Encode()
	f.Add(good[:len(good)-4])
	f.Add([]byte(mark))
	f.Fuzz(func(t *testing.T, body []byte) {
		loaded, err := Decode(cfg, sealed(body))
		if err != nil {
			return
		}
		for _, m := range loaded.order {
			for i := range 130 {
				loaded.Add(begin.Add(time.Duration(i)*time.Minute), m.key, 2)
			}
			m.FindPeriod()
			for _, by := range Methods() {
				if f := m.By(by, begin.Add(130*time.Minute), time.Hour); !(f.Peak >= 0) || f.Confidence > 1 {
					t.Errorf("%v: %+v", m.key, f)
				}
			}
		}
		if _, err := Decode(cfg, loaded.Encode()); err != nil {
			t.Errorf("what was loaded can't be loaded again: %v", err)
		}
	})
}

// sealed appends the checksum.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
}
