package recorder

import (
	"cmp"
	"encoding/json"
)

// oldNames are those that recordings of builds before 0.1.0 have for the type of a decision and for what is in $/h. They can be read until
// 1.0.
type oldNames struct {
	Kind     string `json:"kind"`
	Cost     number `json:"cost"`
	Price    number `json:"price"`
	PoolCost number `json:"poolCost"`
	Saving   number `json:"saving"`
	Saved    number `json:"saved"`
}

// decode decodes an object, and what has old names apart from it.
func decode(data []byte, into any) (old oldNames, err error) {
	if err := json.Unmarshal(data, into); err != nil {
		return old, err
	}
	return old, json.Unmarshal(data, &old)
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Decision) UnmarshalJSON(data []byte) error {
	type plain Decision
	old, err := decode(data, (*plain)(d))
	d.Kind = cmp.Or(d.Kind, old.Kind)
	d.HourlyCost, d.HourlySavings = cmp.Or(d.HourlyCost, old.Cost), cmp.Or(d.HourlySavings, old.Saving)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *NodeRecord) UnmarshalJSON(data []byte) error {
	type plain NodeRecord
	old, err := decode(data, (*plain)(n))
	n.HourlyCost = cmp.Or(n.HourlyCost, old.Price)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *LaunchRecord) UnmarshalJSON(data []byte) error {
	type plain LaunchRecord
	old, err := decode(data, (*plain)(l))
	l.HourlyCost = cmp.Or(l.HourlyCost, old.Price)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Alternative) UnmarshalJSON(data []byte) error {
	type plain Alternative
	old, err := decode(data, (*plain)(a))
	a.HourlyCost, a.HourlySavings = cmp.Or(a.HourlyCost, old.Price), cmp.Or(a.HourlySavings, old.Saving)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Score) UnmarshalJSON(data []byte) error {
	type plain Score
	old, err := decode(data, (*plain)(s))
	s.HourlySavings, s.PoolHourlyCost = cmp.Or(s.HourlySavings, old.Saved), cmp.Or(s.PoolHourlyCost, old.PoolCost)
	return err
}
