package recorder

import (
	"cmp"
	"encoding/json"
)

// Recordings of builds before 0.1.0 have other names for what is in $/h. They can be read until 1.0.

// UnmarshalJSON implements json.Unmarshaler.
func (d *Decision) UnmarshalJSON(data []byte) error {
	type plain Decision
	old := struct {
		*plain
		Cost   number `json:"cost"`
		Saving number `json:"saving"`
	}{plain: (*plain)(d)}
	err := json.Unmarshal(data, &old)
	d.HourlyCost, d.HourlySavings = cmp.Or(d.HourlyCost, old.Cost), cmp.Or(d.HourlySavings, old.Saving)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *NodeRecord) UnmarshalJSON(data []byte) error {
	type plain NodeRecord
	old := struct {
		*plain
		Price number `json:"price"`
	}{plain: (*plain)(n)}
	err := json.Unmarshal(data, &old)
	n.HourlyCost = cmp.Or(n.HourlyCost, old.Price)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *LaunchRecord) UnmarshalJSON(data []byte) error {
	type plain LaunchRecord
	old := struct {
		*plain
		Price number `json:"price"`
	}{plain: (*plain)(l)}
	err := json.Unmarshal(data, &old)
	l.HourlyCost = cmp.Or(l.HourlyCost, old.Price)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Alternative) UnmarshalJSON(data []byte) error {
	type plain Alternative
	old := struct {
		*plain
		Price  number `json:"price"`
		Saving number `json:"saving"`
	}{plain: (*plain)(a)}
	err := json.Unmarshal(data, &old)
	a.HourlyCost, a.HourlySavings = cmp.Or(a.HourlyCost, old.Price), cmp.Or(a.HourlySavings, old.Saving)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Score) UnmarshalJSON(data []byte) error {
	type plain Score
	old := struct {
		*plain
		Saved    number `json:"saved"`
		PoolCost number `json:"poolCost"`
	}{plain: (*plain)(s)}
	err := json.Unmarshal(data, &old)
	s.HourlySavings, s.PoolHourlyCost = cmp.Or(s.HourlySavings, old.Saved), cmp.Or(s.PoolHourlyCost, old.PoolCost)
	return err
}
