package requirement

// Record is a Requirement as plain data, for recordings: unlike the form of the API, it has every state of a Requirement, in
// one entry.
type Record struct {
	Key        string   `json:"key"`
	Complement bool     `json:"complement,omitempty"`
	Values     []string `json:"values,omitempty"`
	Present    bool     `json:"present,omitempty"`
	Min        *int64   `json:"min,omitempty"`
	Max        *int64   `json:"max,omitempty"`
	MinValues  int      `json:"minValues,omitempty"`
}

// Records returns the requirements of the set as plain data.
func (s Set) Records() []Record {
	out := make([]Record, 0, len(s.list))
	for _, r := range s.list {
		lowest, highest := r.Bounds()
		out = append(out, Record{r.key, r.complement, r.values, r.present, lowest, highest, r.minValues})
	}
	return out
}

// FromRecords returns the set that Records was called on. Records of any other origin give a valid set, too.
func FromRecords(records []Record) Set {
	list := make([]Requirement, 0, len(records))
	for _, d := range records {
		list = append(list, d.requirement())
	}
	return NewSet(list...)
}

func (d Record) requirement() Requirement {
	if !d.Complement {
		r := In(d.Key, d.Values...)
		r.present = d.Present && len(d.Values) == 0
		return r.WithMinValues(d.MinValues)
	}
	r := NotIn(d.Key, d.Values...)
	r.present = d.Present
	if d.Min != nil {
		r = r.Intersect(AtLeast(d.Key, *d.Min))
	}
	if d.Max != nil {
		r = r.Intersect(AtMost(d.Key, *d.Max))
	}
	return r.WithMinValues(d.MinValues)
}
