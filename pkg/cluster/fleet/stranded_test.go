package fleet

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// What is stranded is free, is either CPU or memory of a node, and the rest has the pods' shape.
func TestStranded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		free, want nodereport.Amount
	}{
		{nodereport.Amount{MilliCPU: 8000, MemoryBytes: 32 << 30}, nodereport.Amount{}},
		{nodereport.Amount{MilliCPU: 8000, MemoryBytes: 8 << 30}, nodereport.Amount{MilliCPU: 6000}},
		{nodereport.Amount{MilliCPU: 500, MemoryBytes: 8 << 30}, nodereport.Amount{MemoryBytes: 6 << 30}},
		{nodereport.Amount{MilliCPU: 500}, nodereport.Amount{MilliCPU: 500}},
	} {
		if got := strandedOf(test.free, UsualMemoryPerCPU); got != test.want {
			t.Errorf("of %+v, %+v is stranded, want %+v", test.free, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		free := nodereport.Amount{MilliCPU: rapid.Int64Range(0, nodereport.MaxAmount).Draw(t, "cpu"), MemoryBytes: rapid.Int64Range(0, nodereport.MaxAmount).Draw(t, "memory")}
		per := rapid.Int64Range(1, 1<<50).Draw(t, "memory per CPU")
		got := strandedOf(free, per)
		if got.MilliCPU < 0 || got.MemoryBytes < 0 || got.MilliCPU > free.MilliCPU || got.MemoryBytes > free.MemoryBytes || got.MilliCPU > 0 && got.MemoryBytes > 0 {
			t.Fatalf("of %+v, %+v is stranded for %d", free, got, per)
		}
	})
}

// Nodes that together could sell a pod, and of which none can, are stranded; what pods have is not free.
func TestStrandedByNode(t *testing.T) {
	t.Parallel()
	text := func(cpu, memory, bound int64) string {
		text, _ := (&nodereport.Report{
			Schema: nodereport.Schema, Sellable: &nodereport.Offers{ShortTerm: nodereport.Amount{MilliCPU: cpu, MemoryBytes: memory << 30}},
			Bound: nodereport.Offers{ShortTerm: nodereport.Amount{MilliCPU: bound, MemoryBytes: bound << 20}},
		}).Text()
		return text
	}
	nodes := []Node{{Name: "a", Report: text(8000, 0, 0)}, {Name: "b", Report: text(0, 32, 0)}}
	if got := Summarize(nodes, nil, "", 4<<30).Total; got.Stranded != (nodereport.Amount{MilliCPU: 8000, MemoryBytes: 32 << 30}) || got.Free != got.Stranded {
		t.Errorf("%+v", got)
	}
	bought := Summarize([]Node{{Name: "a", Report: text(8000, 32, 2000)}}, nil, "", 0)
	if bought.MemoryPerCPUBytes != 1000<<20 || bought.Total.Free.MilliCPU != 6000 || bought.Total.Stranded.MilliCPU != 0 || bought.Total.Stranded.MemoryBytes == 0 {
		t.Errorf("%+v", bought)
	}
}

func TestBenefit(t *testing.T) {
	t.Parallel()
	s := Summarize([]Node{{Name: "a", Labels: map[string]string{"z": "x"}}, {Name: "b"}, {Name: "c"}}, nil, "z", 0)
	s.AddBenefit([]*NodeLoad{
		{Node: "b", CPUHours: 1, Evicted: 1, Advice: []control.Advice{{Object: "p", Text: "t"}}},
		{Node: "a", CPUHours: 2, Squeezes: 5},
	}, Asked{Failed: []Failure{{Node: "c"}}})
	b := s.Benefit
	if len(b.Groups) != 3 || b.Groups[0] != (GroupBenefit{Name: "x", Answered: 1, CPUHours: 2, Squeezes: 5}) || b.Groups[1].Evicted != 1 || b.Groups[2] != (GroupBenefit{Name: "total", Answered: 2, CPUHours: 3, Squeezes: 5, Evicted: 1}) ||
		len(b.Advice) != 1 || b.Advice[0] != (NodeAdvice{"b", "p", "t"}) || len(b.Failed) != 1 {
		t.Errorf("%+v", b)
	}
}
