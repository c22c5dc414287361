package ssm

import (
	"encoding/json"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// requiredPermissions are what a caller must be allowed to do for a call of the parameter store: on each parameter that
// it names. Those that AWS publishes are of no account.
func (s *Store) requiredPermissions(r *protocol.Request) []protocol.RequiredPermission {
	var body struct {
		Name, Path string
		Names      []string
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return []protocol.RequiredPermission{{}} // the handler states what is wrong
	}
	names := body.Names
	if name := body.Name + body.Path; name != "" {
		names = append(names, name)
	}
	var needs []protocol.RequiredPermission
	for _, name := range names {
		needs = append(needs, protocol.RequiredPermission{Resource: s.arn(name)})
	}
	if needs == nil {
		needs = []protocol.RequiredPermission{{}}
	}
	return needs
}

// arn is the ARN of a parameter by its name, or by its ARN; a version is no part of it.
func (s *Store) arn(name string) string {
	if strings.HasPrefix(name, "arn:") {
		return name
	}
	if m := selector.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	account := s.cfg.AccountID
	if strings.HasPrefix(name, "/aws/service/") {
		account = ""
	}
	return "arn:aws:ssm:" + s.cfg.Region + ":" + account + ":parameter/" + strings.TrimPrefix(name, "/")
}
