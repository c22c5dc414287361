package ec2

import "fmt"

// CopyInstance launches an instance as another was launched. tags states which tags it has. This is no call of the API: nobody's
// permission is checked, and it appears in no log.
func (e *EC2) CopyInstance(id string, tags func(launched Instance) map[string]string) (Instance, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.fleet.get(id)
	if of == nil {
		return Instance{}, fmt.Errorf("copy instance %s: there is none", id)
	}
	r, err := e.launch(of.order, e.newBatch("" /* no client token */, e.cfg.Clock.Now()))
	if err != nil {
		return Instance{}, fmt.Errorf("copy instance %s: %w", id, err)
	}
	r.Tags = tags(r.Instance.clone()) // nobody has seen the record yet
	e.setTimer()
	return r.Instance.clone(), nil
}
