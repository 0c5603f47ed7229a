package config

import (
	"strings"
	"testing"
)

func TestRatio(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Ratio{"1": 100, "1.00": 100, "1.2": 120, "1.15": 115, "2.29": 229, "5": 500, "5.00": 500} {
		var got Ratio
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "0", "0.99", "5.01", "6", "-1", "1.234", "1,2", "1e0", "0x1p1", "NaN", "Inf", "1_0", " 1", "1 ", "twice"} {
		var got Ratio
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %s", text, got)
		}
	}
	_, err := Parse([]byte("cpuNormalization:\n  ratio: 0.9\n"))
	if err == nil || !strings.Contains(err.Error(), `line 2: cpuNormalization.ratio: "0.9": must be a number from 1 to 5 with at most two decimals, such as 1.2`) {
		t.Error(err)
	}
}

// FuzzRatio checks that what is read is within its bounds, and is read again from its text.
func FuzzRatio(f *testing.F) {
	for _, seed := range []string{"1", "1.2", "5.00", "0.99", "1.234", "1e1", "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var r, again Ratio
		if r.UnmarshalText([]byte(text)) != nil {
			return
		}
		if r < 100 || r > 500 {
			t.Fatalf("%q is %d", text, r)
		}
		if back, err := r.MarshalText(); err != nil || again.UnmarshalText(back) != nil || again != r || string(back) != r.String() {
			t.Fatalf("%q is %s, and read again %s, %v", text, r, again, err)
		}
	})
}
