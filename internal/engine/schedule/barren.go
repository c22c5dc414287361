package schedule

// barren says of each pool whose own requirements leave no instance types, or too few for its minValues, that they do.
func (sv *solver) barren() []Reason {
	var out []Reason
	for _, t := range sv.templates {
		if t.broken.Code != "" {
			out = append(out, t.broken)
			continue
		}
		if sv.bestEffort || !t.reqs.HasMinValues() {
			continue
		}
		all := make([]candidate, len(t.types))
		for i := range all {
			all[i].t = i
		}
		if missed, _ := t.minima(t.reqs, all); len(missed) > 0 {
			out = append(out, Reason{Code: MinValues, NodePool: t.pool.Name, Message: explainMinima(t.reqs, missed)})
		}
	}
	return out
}
