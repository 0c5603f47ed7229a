package control

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// shop returns a node of 100 CPUs and 100 GiB, of which pins hold 16 CPUs. LS uses 8 CPUs,
// everything but BE together 10 GiB, and the system 4 CPUs and 2 GiB.
func shop() *scene {
	s := newScene(100)
	s.MemoryTotal, s.Shared = 100*testGiB, 84000
	s.Node.Memory.Total = 100 * testGiB
	for _, one := range []struct {
		name           string
		class          workload.Class
		request, usage workload.MilliCPU
		memory, set    int64
	}{
		{"web", workload.LS, 30000, 8000, 30, 5},
		{"pin", workload.LSR, 8000, 4000, 8, 3},
		{"own", workload.LSE, 8000, 1000, 2, 1},
		{"batch", workload.BE, 16000, 16000, 20, 9},
	} {
		c := s.run(one.name, one.class, one.request, 0)
		c.CPU.Usage, c.Memory, c.Apart = one.usage, one.memory*testGiB, one.class.Pinned()
		c.Container.Memory.WorkingSet, c.Container.Memory.Anon = one.set*testGiB, one.set*testGiB
	}
	s.Node.CPU.Usage = 8000 + 4000 + 1000 + 16000 + 4000
	s.Node.Memory.Available = (100 - 5 - 3 - 1 - 9 - 2) * testGiB
	return s
}

func TestOffering(t *testing.T) {
	t.Parallel()
	gib := func(n int64) int64 { return n * testGiB }
	for name, test := range map[string]struct {
		set      func(s *scene)
		by       OfferMemoryBy
		reserved Amount
		want     Amount
	}{
		"by usage":                           {nil, OfferMemoryByUsage, Amount{}, Amount{60000 - 16000 - 8000 - 4000, gib(65 - 10 - 2)}},
		"memory by request":                  {nil, OfferMemoryByRequest, Amount{}, Amount{32000, gib(65 - 40 - 2)}},
		"a reserve that is not used":         {nil, OfferMemoryByUsage, Amount{6000, gib(5)}, Amount{30000, gib(65 - 10 - 5)}},
		"a reserve that is used":             {nil, OfferMemoryByUsage, Amount{1000, gib(1)}, Amount{32000, gib(53)}},
		"reserved CPUs":                      {func(s *scene) { s.Allocatable, s.Shared = 90000, 74000 }, OfferMemoryByUsage, Amount{}, Amount{26000, gib(53)}},
		"an idle pin":                        {func(s *scene) { s.at("pin").CPU.Usage, s.Node.CPU.Usage = 0, 29000 }, OfferMemoryByUsage, Amount{}, Amount{32000, gib(53)}},
		"a pin that is lent":                 {func(s *scene) { s.at("pin").CPU.Usage, s.Node.CPU.Usage, s.Lent = 0, 29000, 8000 }, OfferMemoryByUsage, Amount{}, Amount{40000, gib(53)}},
		"a pin that shares for want of CPUs": {func(s *scene) { s.at("pin").Apart, s.Shared = false, 92000 }, OfferMemoryByUsage, Amount{}, Amount{60000 - 8000 - 8000 - 4000 - 4000, gib(53)}},
		"a new service":                      {func(s *scene) { s.at("web").Created = s.Now }, OfferMemoryByUsage, Amount{}, Amount{60000 - 16000 - 30000 - 4000, gib(65 - 35 - 2)}},
		"a service that uses more than it asks from the start": {func(s *scene) { s.at("web").Created, s.at("web").Request = s.Now, 1000 }, OfferMemoryByUsage, Amount{}, Amount{32000, gib(65 - 35 - 2)}},
		"a service a minute old":                               {func(s *scene) { s.at("web").Created = s.Now.Add(-time.Minute) }, OfferMemoryByUsage, Amount{}, Amount{32000, gib(53)}},
		"a service that gives way":                             {func(s *scene) { s.Demoted = 5000 }, OfferMemoryByUsage, Amount{}, Amount{27000, gib(53)}},
		"nothing left":                                         {func(s *scene) { s.at("web").CPU.Usage, s.Node.CPU.Usage = 60000, 85000 }, OfferMemoryByUsage, Amount{}, Amount{0, gib(53)}},
		"closed":                                               {func(s *scene) { s.Batch.Closed = true }, OfferMemoryByUsage, Amount{}, Amount{}},
	} {
		s := shop()
		if test.set != nil {
			test.set(s)
		}
		cfg := DefaultConfig().Offer
		cfg.MemoryBy = test.by
		offer, decisions := firstOffer(t, NewOffering(cfg, test.reserved, time.Second, Peaks{}), s.second, 3, 4)
		if offer.ShortTerm != test.want || !offer.Known || !slices.Equal(offer.FreeCPUs, []int{3, 4}) || len(decisions) != 1 {
			t.Errorf("%s: %+v, want %+v; %v", name, offer, test.want, decisions)
		}
	}
}

// firstOffer returns what is offered once the node's usage has been known for long enough, and the decision.
func firstOffer(t *testing.T, o *Offering, step func() *View, free ...int) (Offer, []Decision) {
	t.Helper()
	for range 100 {
		if offer, decisions := o.Step(step(), free); offer.Known {
			return offer, decisions
		}
	}
	t.Fatal("nothing is offered")
	return Offer{}, nil
}

func newOffering(peaks Peaks) *Offering {
	return NewOffering(DefaultConfig().Offer, Amount{}, time.Second, peaks)
}

func TestOfferCountsWhatIsNotSeenAtItsRequest(t *testing.T) {
	t.Parallel()
	s := shop()
	offer, _ := firstOffer(t, newOffering(Peaks{}), func() *View {
		s.second()
		// Without its measurement, the server's usage counts as the system's.
		s.at("web").CPU.At, s.at("web").Container.Memory.At = time.Time{}, time.Time{}
		return &s.View
	})
	if want := (Amount{60000 - 30000 - 16000 - 12000, (65 - 30 - 5 - 7) * testGiB}); offer.ShortTerm != want {
		t.Errorf("%+v, want %+v", offer.ShortTerm, want)
	}
}

// Containers' memory is measured every ten seconds: in between, what batch work holds is not for others.
func TestOfferBetweenMeasurementsOfMemory(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{200 * time.Millisecond, time.Second, 10 * time.Second} {
		s := shop()
		offering := NewOffering(DefaultConfig().Offer, Amount{}, interval, Peaks{})
		first, _ := firstOffer(t, offering, func() *View { return s.pass(interval) })
		for range 600 {
			if offer, _ := offering.Step(s.pass(interval), nil); offer.ShortTerm != first.ShortTerm {
				t.Fatalf("with an interval of %v, at %v: %+v, at first %+v", interval, s.Now, offer.ShortTerm, first.ShortTerm)
			}
		}
	}
}

func TestOfferLongLived(t *testing.T) {
	t.Parallel()
	s := shop()
	offering := newOffering(Peaks{})
	offer, _ := firstOffer(t, offering, s.second)
	// Without a whole measured hour, requests of 46 CPUs and 40 GiB count.
	if want := (Amount{14000, 25 * testGiB}); offer.LongTerm != want || offer.PeakHours != 0 {
		t.Errorf("at first %+v, want %+v", offer, want)
	}
	for range 1800 {
		offering.Step(s.second(), nil)
	}
	s.at("web").CPU.Usage, s.Node.CPU.Usage = 18000, s.Node.CPU.Usage+10000
	for range 900 { // a peak of 34 CPUs, and 4 of the system
		offering.Step(s.second(), nil)
	}
	s.at("web").CPU.Usage, s.Node.CPU.Usage = 8000, s.Node.CPU.Usage-10000
	for range 1800 {
		offer, _ = offering.Step(s.second(), nil)
	}
	if offer.PeakHours != 1 || offer.LongTerm.CPU < 22000 || offer.LongTerm.CPU > 22010 || offer.ShortTerm.CPU != 32000 {
		t.Errorf("after a peak %+v, want 22 CPUs long-lived and 32 short-lived", offer)
	}
	text, err := json.Marshal(offering.Peaks())
	if err != nil {
		t.Fatal(err)
	}
	var kept Peaks
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	if again, _ := firstOffer(t, newOffering(kept), s.second); again.LongTerm != offer.LongTerm || again.PeakHours != 1 {
		t.Errorf("after a restart %+v, before %+v", again, offer)
	}
	s.Now = s.Now.Add(25 * time.Hour)
	if again, _ := firstOffer(t, newOffering(kept), s.second); again.PeakHours != 0 {
		t.Errorf("a day later %+v", again)
	}
}

func TestOfferReportsLargeChangesAtOnceAndSmallOnesLater(t *testing.T) {
	t.Parallel()
	s := shop()
	offering := newOffering(Peaks{})
	firstOffer(t, offering, s.second)
	for range 60 { // the mean is of all that was measured
		offering.Step(s.second(), nil)
	}
	move := func(usage workload.MilliCPU) {
		s.Node.CPU.Usage += usage - s.at("web").CPU.Usage
		s.at("web").CPU.Usage = usage
	}
	move(11000) // a change by 9 % of 32
	for i := range 239 {
		if offer, decisions := offering.Step(s.second(), nil); len(decisions) != 0 || offer.ShortTerm.CPU != 32000 {
			t.Fatalf("after %d s: %+v, %v", i, offer, decisions)
		}
	}
	if offer, decisions := offering.Step(s.second(), nil); len(decisions) != 1 || offer.ShortTerm.CPU < 29000 || offer.ShortTerm.CPU > 29100 {
		t.Errorf("after five minutes: %+v, %v", offer, decisions)
	}
	move(41000) // to nothing; the mean has a tenth of the change after some seconds
	seconds := 0
	for decisions := []Decision(nil); len(decisions) == 0 && seconds < 300; seconds++ {
		_, decisions = offering.Step(s.second(), nil)
	}
	if seconds < 5 || seconds > 10 {
		t.Errorf("a large change is told after %d s", seconds)
	}
}

// TestOfferIsOneMovement checks that an offer which follows a load is one decision, and that a
// change too small to be displayed is none.
func TestOfferIsOneMovement(t *testing.T) {
	t.Parallel()
	s := shop()
	offering := newOffering(Peaks{})
	var told Movements
	decided := 0
	step := func(usage workload.MilliCPU) (news int) {
		s.Node.CPU.Usage += usage - s.at("web").CPU.Usage
		s.at("web").CPU.Usage = usage
		_, decisions := offering.Step(s.second(), nil)
		for i := range decisions {
			decided++
			if _, d := told.Add(s.Now, On, &decisions[i]); d.Steps == 1 {
				news++
			}
		}
		return news
	}
	step(8000)
	news := 0
	for second := range 200 {
		news += step(8000 + 200*workload.MilliCPU(second))
	}
	if decided < 10 || news*2 > decided { // steps that are 10 s apart are reported one by one
		t.Errorf("one rising load was told as %d movements, of %d decisions", news, decided)
	}
	for range 600 {
		step(39980)
	}
	if was := decided; step(39990)+step(39960) > 0 || decided > was {
		t.Error("an offer was told again for a change of some thousandths of a CPU")
	}
}

// TestFirstOffer checks that a peak of a second at the plugin's start counts as one second, both in the first offer and
// in the peaks of hours.
func TestFirstOffer(t *testing.T) {
	t.Parallel()
	s := shop()
	offering := newOffering(Peaks{})
	s.Node.CPU.Usage += 50000 // of the system: 54 CPUs in the first second, and 4 from then on
	offering.Step(s.second(), nil)
	offering.Step(s.second(), nil)
	s.Node.CPU.Usage -= 50000
	if offer, _ := firstOffer(t, offering, s.second); offer.ShortTerm.CPU != 27000 {
		t.Errorf("%v CPUs are offered after 10 s, want 32 less a tenth of 50", offer.ShortTerm.CPU)
	}
	for range 4000 {
		offering.Step(s.second(), nil)
	}
	peaks := offering.Peaks()
	if peak, hours := peaks.most(s.Now); hours != 1 || peak.CPU > 29000 {
		t.Errorf("in %d hours the peak is %v CPUs, want 28 and what is left after a minute", hours, peak.CPU)
	}
}

// TestOfferFollowsOnABusyNode checks that an offer falls as fast when only one of ten measurements comes in time.
func TestOfferFollowsOnABusyNode(t *testing.T) {
	t.Parallel()
	s := shop()
	offering := newOffering(Peaks{})
	before, _ := firstOffer(t, offering, s.second)
	s.at("web").CPU.Usage, s.Node.CPU.Usage = 38000, s.Node.CPU.Usage+30000
	offer := before
	for range 6 {
		for range 9 {
			offering.Step(s.blind(), nil)
		}
		offer, _ = offering.Step(s.second(), nil)
	}
	if fell := before.ShortTerm.CPU - offer.ShortTerm.CPU; fell < 15000 {
		t.Errorf("within a minute the offer fell by %v CPUs, of 30", fell)
	}
}

func TestOfferUnseen(t *testing.T) {
	t.Parallel()
	s := shop()
	offering := newOffering(Peaks{})
	before, _ := firstOffer(t, offering, s.second)
	for range 299 {
		if offer, decisions := offering.Step(s.blind(), nil); offer.ShortTerm != before.ShortTerm || len(decisions) != 0 {
			t.Fatalf("%+v, %v", offer, decisions)
		}
	}
	for range 5 {
		before, _ = offering.Step(s.blind(), nil)
	}
	if before.Known || before.ShortTerm != (Amount{}) {
		t.Errorf("after five minutes without a look: %+v", before)
	}
	if offer, decisions := offering.Step(s.second(), nil); !offer.Known || len(decisions) != 1 {
		t.Errorf("seen again: %+v, %v", offer, decisions)
	}
}

func TestOfferCheck(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig().Offer
	if p := cfg.Check(); len(p) != 0 {
		t.Errorf("problems of the shipped config: %v", p)
	}
	if p := (&OfferConfig{CPUMarginPercent: -1, MemoryMarginPercent: 101}).Check(); len(p) != 2 {
		t.Errorf("problems %v", p)
	}
	var by OfferMemoryBy
	if err := by.UnmarshalText([]byte("request")); err != nil || by != OfferMemoryByRequest {
		t.Errorf("%q, %v", by, err)
	}
	if err := by.UnmarshalText([]byte("limit")); err == nil || err.Error() != "must be usage or request" {
		t.Errorf("%v", err)
	}
}

// The offer is between 0 and the node less its margin, and the long-term offer is at most the
// short-term offer once whole hours have been measured.
func TestOfferProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := shop()
		offering := newOffering(Peaks{})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.at("web").CPU.Usage = workload.MilliCPU(rapid.IntRange(0, 100000).Draw(t, "web"))
			s.Node.CPU.Usage = workload.MilliCPU(rapid.IntRange(0, 100000).Draw(t, "node"))
			s.at("pin").Container.Memory.WorkingSet = rapid.Int64Range(0, 100*testGiB).Draw(t, "memory")
			offer, _ := offering.Step(s.pass(time.Duration(rapid.IntRange(0, 600).Draw(t, "seconds"))*time.Second), nil)
			for _, a := range []Amount{offer.ShortTerm, offer.LongTerm} {
				if a.CPU < 0 || a.CPU > 60000 || a.MemoryBytes < 0 || a.MemoryBytes > 65*testGiB {
					t.Fatalf("offer %+v", offer)
				}
			}
			if offer.LongTerm.CPU > offer.ShortTerm.CPU || offer.LongTerm.MemoryBytes > offer.ShortTerm.MemoryBytes {
				t.Fatalf("more is sold for long than for short: %+v", offer)
			}
		}
	})
}

func TestOfferAllocs(t *testing.T) {
	offering := newOffering(Peaks{})
	stepsWithout(t, fiveHundred(), func(v *View) { offering.Step(v, nil) })
}

func BenchmarkOffering(b *testing.B) {
	offering := newOffering(Peaks{})
	benchSteps(b, func(v *View) { offering.Step(v, nil) })
}
