package ssm

// Publish sets a public parameter, as AWS does when it releases an image.
func (s *Store) Publish(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parameters[name]
	if p == nil {
		p = &parameter{name: name, public: true}
		s.parameters[name] = p
	}
	p.versions = append(p.versions, version{kind: "String", dataType: "text", value: value, changed: s.cfg.Now()})
}

// Withdraw removes a public parameter: AWS has no such image, or has it no longer.
func (s *Store) Withdraw(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parameters, name)
}
