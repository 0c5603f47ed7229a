package control

// perID holds one state per container or pod. A state that is not requested between begin and
// end belongs to something that is gone, and end drops it.
type perID[T any] struct {
	of      map[string]*perIDEntry[T]
	round   uint64
	visited int
}

type perIDEntry[T any] struct {
	state T
	round uint64
}

func (k *perID[T]) begin() { k.round, k.visited = k.round+1, 0 }

// at returns the state of id, which is new and zero if there was none.
func (k *perID[T]) at(id string) *T {
	e := k.of[id]
	if e == nil {
		if k.of == nil {
			k.of = map[string]*perIDEntry[T]{}
		}
		e = &perIDEntry[T]{}
		k.of[id] = e
	}
	if e.round != k.round {
		e.round = k.round
		k.visited++
	}
	return &e.state
}

// find returns the state of id, or nil if there is none.
func (k *perID[T]) find(id string) *T {
	e := k.of[id]
	if e == nil {
		return nil
	}
	return k.at(id)
}

func (k *perID[T]) drop(id string) {
	if e := k.of[id]; e != nil {
		if e.round == k.round {
			k.visited--
		}
		delete(k.of, id)
	}
}

func (k *perID[T]) end() {
	if k.visited == len(k.of) {
		return
	}
	for id, e := range k.of {
		if e.round != k.round {
			delete(k.of, id)
		}
	}
}
