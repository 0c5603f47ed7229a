package iocost

import (
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const documented = "8:16 enable=1 ctrl=user rpct=95.00 rlat=75000 wpct=95.00 wlat=150000 min=50.00 max=150.00"

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := parse(documented + "\n" +
		"259:0 enable=0 ctrl=auto rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=1.00 max=10000.00\n" +
		"8:0 enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00\n" +
		"8:32 enable=0 ctrl=user rpct=99.9 rlat=1 wpct=0 wlat=2 min=1.5 max=2 later=3\n")
	want := map[string]QoS{
		"8:16":  {Enabled: true, User: true, ReadPercent: 9500, ReadLatency: 75000, WritePercent: 9500, WriteLatency: 150000, Min: 5000, Max: 15000},
		"259:0": {},
		"8:0":   {Enabled: true},
		"8:32":  {User: true, ReadPercent: 9990, ReadLatency: 1, WriteLatency: 2, Min: 150, Max: 200},
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if line := want["8:16"].line("8:16"); line != documented {
		t.Errorf("writes %s", line)
	}
	if line := (QoS{}).line("8:0"); line != "8:0 enable=0 ctrl=auto" {
		t.Errorf("writes %s", line)
	}
	for _, bad := range []string{"8:0 enable=1 ctrl=user rlat=fast", "8:0 ctrl=user min=1.234", "8:0 ctrl=user rpct=-1", "8:0 wpct=."} {
		if got, err := parse(bad); err == nil || !strings.Contains(err.Error(), "8:0") {
			t.Errorf("%s: %+v, %v", bad, got, err)
		}
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := anyQoS(t)
		if got, err := parse(want.line("8:0")); err != nil || got["8:0"] != want {
			t.Fatalf("%+v: %+v, %v", want, got, err)
		}
	})
}

func anyQoS(t *rapid.T) QoS {
	q := QoS{Enabled: rapid.Bool().Draw(t, "enabled"), User: rapid.Bool().Draw(t, "user")}
	if q.User {
		q.ReadPercent, q.WritePercent = Percent(rapid.IntRange(0, 10000).Draw(t, "rpct")), Percent(rapid.IntRange(0, 10000).Draw(t, "wpct"))
		q.ReadLatency, q.WriteLatency = rapid.Int64Range(0, 1<<31).Draw(t, "rlat"), rapid.Int64Range(0, 1<<31).Draw(t, "wlat")
		q.Min, q.Max = Percent(rapid.IntRange(100, 1000).Draw(t, "min")), Percent(rapid.IntRange(1000, 1000000).Draw(t, "max"))
	}
	return q
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{documented, "", "8:0", "8:0 enable=1 ctrl=auto", "8:0 rpct=1.2.3", "8:0 min=.5", "8:0 max=1."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parse(text)
		if err != nil {
			return
		}
		for number, q := range all {
			if again, err := parse(q.line(number)); err != nil || again[number] != q {
				t.Errorf("%q: %+v, written and read %+v, %v", text, q, again[number], err)
			}
		}
	})
}
