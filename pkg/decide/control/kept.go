package control

// kept is state by container or pod. What is not asked for in a round is dropped at
// its end: it is gone.
type kept[T any] struct {
	of    map[string]*keptEntry[T]
	round uint64
	asked int
}

type keptEntry[T any] struct {
	state T
	round uint64
}

func (k *kept[T]) begin() { k.round, k.asked = k.round+1, 0 }

// at is the state of id, the zero value at first.
func (k *kept[T]) at(id string) *T {
	e := k.of[id]
	if e == nil {
		if k.of == nil {
			k.of = map[string]*keptEntry[T]{}
		}
		e = &keptEntry[T]{}
		k.of[id] = e
	}
	if e.round != k.round {
		e.round = k.round
		k.asked++
	}
	return &e.state
}

// find is the state of id, nil where there is none.
func (k *kept[T]) find(id string) *T {
	e := k.of[id]
	if e == nil {
		return nil
	}
	return k.at(id)
}

func (k *kept[T]) drop(id string) {
	if e := k.of[id]; e != nil {
		if e.round == k.round {
			k.asked--
		}
		delete(k.of, id)
	}
}

func (k *kept[T]) end() {
	if k.asked == len(k.of) {
		return
	}
	for id, e := range k.of {
		if e.round != k.round {
			delete(k.of, id)
		}
	}
}
