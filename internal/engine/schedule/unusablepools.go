package schedule

// unusablePools lists, with the reason, each pool that has no instance types under its own requirements, or too few for
// its minValues.
func (sv *solver) unusablePools() []Reason {
	var out []Reason
	for _, t := range sv.templates {
		if t.unusable.Code != "" {
			out = append(out, t.unusable)
			continue
		}
		if sv.bestEffort || !t.reqs.HasMinValues() {
			continue
		}
		all := make([]candidate, len(t.types))
		for i := range all {
			all[i].t = i
		}
		if missed, _ := t.minValuesShortfall(t.reqs, all); len(missed) > 0 {
			out = append(out, Reason{Code: MinValues, NodePool: t.pool.Name, Message: describeMinValues(t.reqs, missed)})
		}
	}
	return out
}
