package fake

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Each rule of the kernel has a case: what is done to which machine, and what comes
// of it.
func TestRules(t *testing.T) {
	t.Parallel()
	type step struct {
		file, text string // mkdir where the text is "mkdir", rmdir where "rmdir"
		errno      error
		status     string
	}
	ok := func(file, text string) step { return step{file, text, nil, "ok\n"} }
	bad := func(file, text, status string) step { return step{file, text, syscall.EINVAL, status} }
	split := []step{ // the default group and another share no way, and none with hardware
		ok("schemata", "L3:0=f;1=f\n"), ok("a", "mkdir"), ok("a/schemata", "L3:0=f0;1=f0\n"), ok("a/mode", "exclusive\n"),
	}
	with := func(before []step, steps ...step) []step { return append(slices.Clone(before), steps...) }
	one := Machine{L3: &Cache{IDs: []int{0}, Mask: 0xff, MinBits: 1}, CLOSIDs: 8, RMIDs: 3, Events: events()}
	tests := map[string]struct {
		machine Machine
		steps   []step
		want    string // a/schemata without blanks, "" not looked at
	}{
		"a new group has everything":   {Intel(), []step{ok("a", "mkdir")}, "L3:0=7ff;1=7ff\nMB:0=100;1=100\n"},
		"a gap":                        {Intel(), []step{bad("schemata", "L3:0=5\n", "The mask 5 has non-consecutive 1-bits\n")}, ""},
		"a gap where it is allowed":    {AMD(), []step{ok("a", "mkdir"), ok("a/schemata", "L3:0=5\n")}, "L3:0=5;1=ffff;4=ffff;12=ffff\nMB:0=2048;1=2048;4=2048;12=2048\nSMBA:0=2048;1=2048;4=2048;12=2048\n"},
		"no way":                       {Intel(), []step{bad("schemata", "L3:0=0\n", "Mask out of range\n")}, ""},
		"a way too many":               {Intel(), []step{bad("schemata", "L3:0=fff\n", "Mask out of range\n")}, ""},
		"too few ways":                 {Haswell(), []step{bad("schemata", "L3:0=1\n", "Need at least 2 bits in the mask\n")}, ""},
		"no number":                    {Intel(), []step{bad("schemata", "L3:0=xy\n", "Non-hex character in the mask xy\n")}, ""},
		"bandwidth is rounded up":      {Intel(), []step{ok("a", "mkdir"), ok("a/schemata", "MB:0=85;1=11\n")}, "L3:0=7ff;1=7ff\nMB:0=90;1=20\n"},
		"bandwidth below the least":    {Intel(), []step{bad("schemata", "MB:0=5\n", "MB value 5 out of range [10,100]\n")}, ""},
		"bandwidth above the most":     {AMD(), []step{bad("schemata", "MB:0=2049\n", "MB value 2049 out of range [0,2048]\n")}, ""},
		"slow memory":                  {AMD(), []step{ok("schemata", "SMBA:12=16\n"), bad("schemata", "SMBA:0=9999\n", "MB value 9999 out of range [0,2048]\n")}, ""},
		"slow memory, not there":       {Intel(), []step{bad("schemata", "SMBA:0=16\n", "Unknown or unsupported resource name 'SMBA'\n")}, ""},
		"bandwidth no number":          {Intel(), []step{bad("schemata", "MB:0=a\n", "Invalid MB value a\n")}, ""},
		"rates aren't rounded":         {MBps(), []step{ok("a", "mkdir"), ok("a/schemata", "MB:0=5003\n")}, "L3:0=7ff;1=7ff\nMB:0=5003;1=4294967295\n"},
		"a rate applies as it is read": {MBps(), []step{ok("a", "mkdir"), bad("a/schemata", "MB:0=7\nL3:0=0\n", "Mask out of range\n")}, "L3:0=7ff;1=7ff\nMB:0=7;1=4294967295\n"},
		"all lines or none":            {Intel(), []step{ok("a", "mkdir"), bad("a/schemata", "L3:0=1\nMB:0=5\n", "MB value 5 out of range [10,100]\n")}, "L3:0=7ff;1=7ff\nMB:0=100;1=100\n"},
		"no such cache":                {AMD(), []step{bad("schemata", "L3:2=f\n", "ok\n")}, ""},
		"a cache twice":                {Intel(), []step{bad("schemata", "L3:0=f;0=f\n", "Duplicate domain 0\n")}, ""},
		"a cache without value":        {Intel(), []step{bad("schemata", "L3:0\n", "Missing '=' or non-numeric domain\n")}, ""},
		"no end of line":               {Intel(), []step{bad("schemata", "L3:0=f", "ok\n")}, ""},
		"no colon":                     {Intel(), []step{bad("schemata", "L3\n", "Missing ':'\n")}, ""},
		"no value":                     {Intel(), []step{bad("schemata", "L3:\n", "Missing 'L3' value\n")}, ""},
		"L3 under CDP":                 {CDP(), []step{bad("schemata", "L3:0=f\n", "Unknown or unsupported resource name 'L3'\n")}, ""},
		"code apart from data":         {CDP(), []step{ok("a", "mkdir"), ok("a/schemata", "L3CODE:0=3\nL3DATA:1=c\nL2:3=1\n")}, "L3CODE:0=3;1=7ff\nL3DATA:0=7ff;1=c\nL2:0=ffff;1=ffff;2=ffff;3=1\nMB:0=100;1=100\n"},
		"no CLOSID": {Haswell(), []step{ok("a", "mkdir"), ok("b", "mkdir"), ok("c", "mkdir"),
			{"d", "mkdir", syscall.ENOSPC, "Out of CLOSIDs\n"},
			{"a", "rmdir", nil, "Out of CLOSIDs\n"}, ok("d", "mkdir")}, ""},
		"no RMID":                       {one, []step{ok("a", "mkdir"), ok("a/mon_groups/x", "mkdir"), {"b", "mkdir", syscall.ENOSPC, "Out of RMIDs\n"}, {"mon_groups/y", "mkdir", syscall.ENOSPC, "Out of RMIDs\n"}}, ""},
		"a group twice":                 {Intel(), []step{ok("a", "mkdir"), {"a", "mkdir", syscall.EEXIST, "ok\n"}, ok("mon_groups/x", "mkdir"), {"mon_groups/x", "mkdir", syscall.EEXIST, "ok\n"}}, ""},
		"a folder of the kernel's":      {Intel(), []step{{"info", "rmdir", syscall.EPERM, "ok\n"}, {"mon_groups", "mkdir", syscall.EEXIST, "ok\n"}, {"a/b", "mkdir", syscall.EPERM, "ok\n"}}, ""},
		"a group that isn't":            {Intel(), []step{{"a", "rmdir", syscall.ENOENT, "ok\n"}, {"a/tasks", "1", syscall.ENOENT, "ok\n"}, {"a/mon_groups/x", "mkdir", syscall.ENOENT, "ok\n"}, {"mon_groups/x", "rmdir", syscall.ENOENT, "ok\n"}}, ""},
		"others keep off exclusive":     {Intel(), with(split, bad("schemata", "L3:0=1f\n", "Overlaps with exclusive group\n")), ""},
		"exclusive to exclusive":        {Intel(), with(split, bad("a/schemata", "L3:0=1f\n", "Overlaps with other group\n")), ""},
		"exclusive, and hardware's":     {Intel(), with(split, bad("a/schemata", "L3:0=200\n", "Overlaps with other group\n")), ""},
		"a new group beside exclusive":  {Intel(), with(split, ok("b", "mkdir"), bad("b/schemata", "L3:1=10\n", "Overlaps with exclusive group\n")), ""},
		"not exclusive while it shares": {Intel(), []step{ok("a", "mkdir"), bad("a/mode", "exclusive\n", "Schemata overlaps\n")}, ""},
		"no such mode":                  {Intel(), []step{bad("mode", "mine\n", "Unknown or unsupported mode\n")}, ""},
		"shareable again":               {Intel(), with(split, ok("a/mode", "shareable\n"), ok("schemata", "L3:0=1f\n")), ""},
		"no space":                      {one, []step{ok("mode", "exclusive\n"), {"b", "mkdir", syscall.ENOSPC, "No space on L3:0\n"}}, ""},
		"no thread":                     {Intel(), []step{{"tasks", "77", syscall.ESRCH, "No task 77\nError while processing task 77\n"}}, ""},
		"a bad thread":                  {Intel(), []step{bad("tasks", "-1", "Invalid pid -1\n"), bad("tasks", "x", "Task list parsing error pid x\n")}, ""},
		"info is fixed":                 {Intel(), []step{{"info/L3/cbm_mask", "1", syscall.EACCES, "ok\n"}}, ""},
		"watch elsewhere":               {Intel(), []step{ok("a", "mkdir"), ok("a/mon_groups/x", "mkdir"), bad("a/mon_groups/x/tasks", "1", "Can't move task to different control group\nError while processing task 1\n"), ok("a/tasks", "1"), ok("a/mon_groups/x/tasks", "1")}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := New(test.machine)
			k.Start(1, 1)
			for _, s := range test.steps {
				err := k.Write(s.file, s.text)
				switch s.text {
				case "mkdir":
					err = k.Mkdir(s.file)
				case "rmdir":
					err = k.Rmdir(s.file)
				}
				status, _ := k.Read("info/last_cmd_status")
				if !errors.Is(err, s.errno) || status != s.status {
					t.Fatalf("%s %q: got %v with status %q, want %v with %q", s.file, s.text, err, status, s.errno, s.status)
				}
			}
			if test.want == "" {
				return
			}
			if text, err := k.Read("a/schemata"); err != nil || strings.ReplaceAll(text, " ", "") != test.want {
				t.Errorf("got %q, %v; want %q", text, err, test.want)
			}
		})
	}
}

func TestLimbo(t *testing.T) {
	t.Parallel()
	m := Intel()
	m.RMIDs = 2
	k := New(m)
	k.Limbo(true)
	if err := errors.Join(k.Mkdir("a"), k.Rmdir("a")); err != nil {
		t.Fatal(err)
	}
	if err := k.Mkdir("b"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("beside an RMID in limbo: %v, want EBUSY", err)
	}
	k.Limbo(false)
	if err := k.Mkdir("b"); err != nil {
		t.Error(err)
	}
}

func TestThreadsFollow(t *testing.T) {
	t.Parallel()
	k := New(Intel())
	k.Start(5, 5, 6)
	if err := errors.Join(k.Mkdir("a"), k.Mkdir("a/mon_groups/x"), k.Write("a/tasks", "5"), k.Write("a/mon_groups/x/tasks", "5")); err != nil {
		t.Fatal(err)
	}
	k.Clone(5, 5, 7)
	k.Clone(5, 6, 8)
	for tid, want := range map[int]task{5: {"a", "x"}, 7: {"a", "x"}, 6: {}, 8: {}} {
		if group, watch := k.Of(tid); group != want.group || watch != want.watch {
			t.Errorf("thread %d is in %q, %q; want %+v", tid, group, watch, want)
		}
	}
	if text, err := k.Read("a/mon_groups/x/tasks"); text != "5\n7\n" || err != nil {
		t.Errorf("tasks are %q, %v", text, err)
	}
	if err := k.Rmdir("a/mon_groups/x"); err != nil {
		t.Fatal(err)
	}
	if group, watch := k.Of(7); group != "a" || watch != "" {
		t.Errorf("after its monitoring group, thread 7 is in %q, %q", group, watch)
	}
	if err := k.Rmdir("a"); err != nil {
		t.Fatal(err)
	}
	if group, _ := k.Of(7); group != "" {
		t.Errorf("after its group, thread 7 is in %q", group)
	}
}
