package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// selects is a selector that knows three texts.
func selects(selector string) (bool, error) {
	switch selector {
	case "pool=batch":
		return true, nil
	case "pool=web":
		return false, nil
	}
	return false, errors.New("no such selector")
}

func TestSwitch(t *testing.T) {
	t.Parallel()
	six := time.Date(2026, 11, 24, 6, 0, 0, 0, time.UTC)
	type data map[string]string
	for name, c := range map[string]struct {
		data data
		want status.Switch
		err  string // parts of the error, separated by "…"; "" for none
	}{
		"off":                  {data{"batch": "off"}, status.Switch{State: control.SwitchOff}, ""},
		"with spaces":          {data{"batch": " off\n", "evict": " false "}, status.Switch{State: control.SwitchOff}, ""},
		"auto":                 {data{"batch": "auto"}, status.Switch{}, ""},
		"all keys":             {data{"batch": "off", "evict": "true", "until": "2026-11-24T07:00:00+01:00", "nodeSelector": "pool=batch"}, status.Switch{State: control.SwitchOff, Evict: true, EndsAt: six}, ""},
		"for other nodes":      {data{"batch": "off", "nodeSelector": "pool=web"}, status.Switch{}, ""},
		"nothing":              {nil, status.Switch{}, "ConfigMap sluice-switch: the key batch is missing; set it to auto, on or off"},
		"an unknown word":      {data{"batch": "of"}, status.Switch{}, `the key batch has "of": it must be auto, on or off`},
		"an unknown key":       {data{"batch": "off", "evcit": "true"}, status.Switch{}, `"evcit" is not a key of the fleet's switch; did you mean evict?`},
		"a strange key":        {data{"batch": "off", "sluice.yaml": ""}, status.Switch{}, "the keys are batch, evict, until, nodeSelector"},
		"evict with on":        {data{"batch": "on", "evict": "true"}, status.Switch{}, `the key evict has "true": it goes with batch: off alone`},
		"no truth":             {data{"batch": "off", "evict": "yes"}, status.Switch{}, `the key evict has "yes": it must be true or false`},
		"until with auto":      {data{"batch": "auto", "until": "2026-11-24T06:00:00Z"}, status.Switch{}, "the key until…goes with batch: on and batch: off alone"},
		"no time":              {data{"batch": "off", "until": "tomorrow"}, status.Switch{}, `the key until has "tomorrow": it must be a time with its zone`},
		"a time without zone":  {data{"batch": "off", "until": "2026-11-24T06:00:00"}, status.Switch{}, "must be a time with its zone"},
		"long ago":             {data{"batch": "off", "until": "1926-11-24T06:00:00Z"}, status.Switch{}, "must be a time of the years 2000 to 9999"},
		"a bad selector":       {data{"batch": "off", "nodeSelector": "pool=="}, status.Switch{}, `the key nodeSelector has "pool==": it must be a label selector…no such selector`},
		"a mistake of another": {data{"batch": "of", "nodeSelector": "pool=web"}, status.Switch{}, "the key batch"},
		"a long value":         {data{"batch": strings.Repeat("o", 1<<20)}, status.Switch{}, "must be auto, on or off"},
	} {
		got, err := Switch(c.data, selects)
		if got != c.want || (err == nil) != (c.err == "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		for part := range strings.SplitSeq(c.err, "…") {
			if err != nil && (!strings.Contains(err.Error(), part) || len(err.Error()) > 400) {
				t.Errorf("%s: %.400v, want %s", name, err, part)
			}
		}
	}
}

// Whatever a ConfigMap has, the plugin understands what is made of it.
func FuzzSwitch(f *testing.F) {
	f.Add("off", "true", "2026-11-24T06:00:00Z", "pool=batch")
	f.Add("auto", "", "", "")
	f.Add("on", "false", "2026-11-24T06:00:00+01:00", "pool==")
	f.Fuzz(func(t *testing.T, batch, evict, until, selector string) {
		s, err := Switch(map[string]string{batchKey: batch, evictKey: evict, untilKey: until, selectorKey: selector}, selects)
		switch {
		case err != nil && (s != (status.Switch{}) || len(err.Error()) > 1000):
			t.Errorf("%+v with the error %v", s, err)
		case s.Evict && s.State != control.SwitchOff, !s.EndsAt.IsZero() && s.State == control.SwitchAuto:
			t.Errorf("it says %+v", s)
		}
		if _, err := s.EndsAt.MarshalJSON(); err != nil {
			t.Error(err)
		}
	})
}
