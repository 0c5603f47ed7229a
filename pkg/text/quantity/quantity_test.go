package quantity

import (
	"math/big"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, milli := range map[string]int64{
		"0": 0, "1": 1000, "100m": 100, "0.5": 500, ".5": 500, "1.": 1000, "+2": 2000, "01": 1000,
		"1k": 1e6, "1M": 1e9, "1G": 1e12, "1T": 1e15, "1P": 1e18,
		"1Ki": 1024e3, "1Mi": 1 << 20 * 1000, "1.5Gi": 3 << 29 * 1000, "1Ti": 1 << 40 * 1000, "8Pi": 8 << 50 * 1000,
		"1e3": 1e6, "1E3": 1e6, "1.5e-1": 150, "12e+2": 1200e3,
		"1u": 1, "1n": 1, "1001u": 2, "0.0001": 1, // rounded up, as Quantity.MilliValue does
	} {
		got, err := Parse(text)
		if err != nil || int64(got) != milli {
			t.Errorf("%q: %d, %v; want %d", text, got, err, milli)
		}
	}
	for _, text := range []string{
		"", " ", "1 ", "m", ".", "1.2.3", "-1", "0x10", "1_000", "1K", "1ki", "1mi", "1Mb", "1e", "1e3m", "e3", "1E", "9Pi", "1e30", "1e999999999",
		"1e31", "1/2", "Inf", "1KiMi", "1nu",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

func TestValueRoundsUp(t *testing.T) {
	t.Parallel()
	for milli, value := range map[Amount]int64{0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, maxMilli: maxMilli/1000 + 1} {
		if got := milli.Value(); got != value {
			t.Errorf("%d: %d, want %d", milli, got, value)
		}
	}
}

// Every number of milliunits is parsed correctly in all of its notations.
func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 1: "1", 1500: "1500", 1024: "1Ki", 3 << 20: "3Mi", 2 << 30: "2Gi", 1<<30 + 512<<20: "1536Mi", 1 << 60: "1Ei", -2048: "-2Ki"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
		if back, err := Parse(want); n > 0 && n < 1<<50 && (err != nil || back.Value() != n) {
			t.Errorf("%s is read as %d, %v", want, back.Value(), err)
		}
	}
}

func TestParseReadsEveryForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		milli := rapid.Int64Range(0, maxMilli).Draw(t, "milli")
		plain := new(big.Rat).SetFrac64(milli, 1000).FloatString(3)
		for _, text := range []string{plain, plain + "e0", strconv.FormatInt(milli, 10) + "m", strconv.FormatInt(milli, 10) + "e-3"} {
			if got, err := Parse(text); err != nil || int64(got) != milli {
				t.Fatalf("%q: %d, %v; want %d", text, got, err, milli)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"100m", "1.5Gi", "1e3", "-1", "1E", "0.0001n", "99999999999999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text)
		if err != nil {
			return
		}
		if got < 0 || got.Value() < 0 {
			t.Fatalf("%q: %d", text, got)
		}
		if again, err := Parse(strconv.FormatInt(int64(got), 10) + "m"); err != nil || again != got {
			t.Fatalf("%q is %dm, and that is %d, %v", text, got, again, err)
		}
	})
}
