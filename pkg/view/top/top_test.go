package top

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]State{"small": scene(t, small, 3), "middle": scene(t, middle, 12), "large": scene(t, large, 500)} {
		for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 50}} {
			text := Render(seen, Options{Width: size[0], Height: size[1], Live: true})
			golden(t, fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), text)
			if n := strings.Count(text, "\n") + 1; n != size[1] {
				t.Errorf("%s at %dx%d has %d lines", name, size[0], size[1], n)
			}
		}
	}
}

func TestOtherFrames(t *testing.T) {
	t.Parallel()
	at := Options{Width: 80, Height: 24, Live: true}
	golden(t, "waiting", Render(State{}, with(at, func(o *Options) {
		o.Problem = "no answer on /run/sluice/status.sock (is sluice running, and are you root?): dial unix /run/sluice/status.sock: connect: no such file or directory"
	})))
	gone := scene(t, middle, 12)
	gone.Status.Runtime.Connected = false
	golden(t, "gone", Render(gone, with(at, func(o *Options) { o.Problem, o.Paused = "no answer on /run/sluice/status.sock", true })))
	golden(t, "help", Render(scene(t, middle, 12), with(at, func(o *Options) { o.Help = true })))
	golden(t, "colour", strings.ReplaceAll(Render(scene(t, middle, 12), with(at, func(o *Options) { o.Colour = true })), "\x1b", "ESC"))
	golden(t, "memory", Render(scene(t, large, 500), with(at, func(o *Options) { o.Sort, o.First = ByMemory, 100 })))
	golden(t, "throttled", Render(scene(t, large, 500), with(at, func(o *Options) { o.Sort, o.First = ByThrottled, 1000 })))
	golden(t, "once", Render(scene(t, middle, 12), Options{Width: 80}))

	bare := scene(t, middle, 2)
	bare.Status.Loop, bare.Machine = nil, nil
	bare.Status.Mode, bare.Status.Why = "preview", "koordlet: keep koordlet off this node"
	for i := range bare.Status.Pools {
		bare.Status.Pools[i].Load = nil
	}
	bare.Status.Containers[0].Usage, bare.Status.Containers[1].Usage = nil, nil
	golden(t, "no-loop", Render(bare, at))
	golden(t, "new", Render(State{Status: &status.Status{Version: "v0.1.0", Mode: "on"}}, at))
}

func with(o Options, change func(*Options)) Options {
	change(&o)
	return o
}

// docs/top.md shows a golden frame.
func TestThePageShowsAFrame(t *testing.T) {
	t.Parallel()
	name := filepath.Join("..", "..", "..", "docs", "top.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	frame := Render(scene(t, middle, 12), Options{Width: 80, Height: 24, Live: true})
	shown := "```text\n" + frame + "\n```\n"
	if *update {
		block := regexp.MustCompile("(?s)```text\n.*?\n```\n")
		if err := os.WriteFile(name, block.ReplaceAllLiteral(page, []byte(shown)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !strings.Contains(string(page), shown) {
		t.Errorf("%s does not show:\n%s", name, frame)
	}
}

// Pools that overlap are displayed as one owner; each combination of pools is an owner of its own.
func TestOwners(t *testing.T) {
	t.Parallel()
	s := &status.Status{
		Machine: status.Machine{Online: cpuset.Range(0, 9), Reserved: cpuset.Of(0, 20)},
		Pools: []status.Pool{
			{Name: "system", CPUs: cpuset.Of(1, 2, 3)}, {Name: "online", CPUs: cpuset.Of(2, 3, 4, 5, 6)}, {Name: "other", CPUs: cpuset.Of(3, 6, 7)},
			{Name: "o", CPUs: cpuset.Of(8)},
		},
	}
	var got []string
	for _, o := range owners(s) {
		got = append(got, fmt.Sprintf("%c %s: %s", o.letter, o.name, o.cpus))
	}
	want := "v reserved: 0\ns system: 1\nh system, online: 2\na system, online, other: 3\no online: 4-5\nd online, other: 6\nt other: 7\nb o: 8\n- nobody: 9"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestLettersRunOut(t *testing.T) {
	t.Parallel()
	free := letters()
	for range 21 {
		if c := free.take("\x1bABC"); c < 'a' || c > 'z' {
			t.Errorf("%q", c)
		}
	}
	if c := free.take("a"); c != '?' {
		t.Errorf("%q", c)
	}
}

func TestSafe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"plain": "plain", "a\x1b[2J\n": `a\x1b[2J\n`, "caf\u00e9 \u4e2d \U0001F600": `caf\u00e9 \u4e2d \U0001f600`, "\xff": `\ufffd`, `"'\`: `"'\`} {
		if got := safe(text); got != want || safe(got) != got {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for width, want := range map[int]string{-1: "", 0: "", 2: "na", 5: "na~/b", 8: "name~d/b", 12: "namespaced/b", 14: "namespaced/b  "} {
		if got := fit("namespaced/b", width); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
	for share, want := range map[float64]string{0: "[..|..|....]", 0.45: "[##|##|....]", 1: "[##|##|####]", 7: "[##|##|####]", -1: "[..|..|....]"} {
		if got := bar(share, 10, 0.2, 0.5); got != want {
			t.Errorf("%v: %s, want %s", share, got, want)
		}
	}
}

// Scrolling up takes as many keys as scrolling down did.
func TestLast(t *testing.T) {
	t.Parallel()
	seen, at := scene(t, large, 500), Options{Width: 80, Height: 24}
	last := Last(seen, at)
	end := Render(seen, with(at, func(o *Options) { o.First = last }))
	if last < 480 || last >= 500 || end != Render(seen, with(at, func(o *Options) { o.First = 1000 })) || end == Render(seen, with(at, func(o *Options) { o.First = last - 1 })) {
		t.Errorf("the last is %d", last)
	}
	if n := Last(scene(t, small, 3), Options{Width: 80, Height: 50}); n != 0 {
		t.Errorf("three containers scroll by %d", n)
	}
}
