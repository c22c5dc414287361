package bootstrap

import (
	"reflect"
	"slices"
	"sync"
)

// maxRendered limits how many results a Renderer keeps: more than the templates of most node classes, and a few hundred KB at most.
const maxRendered = 32

// Renderer renders as Render does, and keeps its last results: a burst of launches differs in few inputs, and the YAML of each takes
// 200 KB while it is written. Its zero value is ready for use. It is safe for concurrent use.
type Renderer struct {
	mu sync.Mutex
	// rendered are the latest inputs and their results, the latest first.
	rendered []rendering
}

type rendering struct {
	family string
	in     Input
	out    Rendered
}

// Render returns the user data for an AMI family. Neither the input nor the result may be changed afterwards.
func (r *Renderer) Render(family string, in Input) (Rendered, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.rendered, func(have rendering) bool { return have.family == family && reflect.DeepEqual(have.in, in) })
	if i >= 0 {
		found := r.rendered[i]
		copy(r.rendered[1:i+1], r.rendered[:i])
		r.rendered[0] = found
		return found.out, nil
	}
	out, err := Render(family, in)
	if err != nil {
		return Rendered{}, err
	}
	if len(r.rendered) == maxRendered {
		r.rendered = r.rendered[:maxRendered-1]
	}
	r.rendered = slices.Insert(r.rendered, 0, rendering{family, in, out})
	return out, nil
}
