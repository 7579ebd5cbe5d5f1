// Reads operations on registers as JSON lines, and answers for each key whether they are linearizable.
//
// The kind of a register is the first part of its key:
//
//	offset/...  commit writes a number, fetch reads one; -1: there is none yet
//	lock/...    lock answers 1 (granted to the client) or 0 (another has it), unlock frees what the client has
//	master/...  acquire answers the number of the reign: one more than the last
//
// forget is a fault after which the state is not known: the next read shows it. It is for state that brokers
// may lose in a fail-over. An operation without an end may take effect at any time after its begin, or never.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Key    string `json:"key"`
	Kind   string `json:"kind"`
	Client int    `json:"client"`
	Begin  int64  `json:"begin"`
	End    *int64 `json:"end"`
	Amount int64  `json:"amount"`
}

type answer struct {
	Key        string `json:"key"`
	Operations int    `json:"operations"`
	Result     string `json:"result"`
	Picture    string `json:"picture,omitempty"`
}

const (
	none    int64 = -1
	unknown int64 = -2
	granted int64 = 1
)

// The state is a number: the register's, or the client that has the lock, or the last reign.
func step(state, input, output interface{}) (bool, interface{}) {
	now, asked, isKnown := state.(int64), input.(operation), output.(bool)
	client := int64(asked.Client)
	switch asked.Kind {
	case "forget":
		return true, unknown
	case "commit":
		return true, asked.Amount
	case "fetch":
		return now == asked.Amount || now == unknown, asked.Amount
	case "unlock":
		if now == client {
			return true, none
		}
		return true, now
	case "lock":
		isFree := now == none || now == client || now == unknown
		if !isKnown {
			if isFree {
				return true, client
			}
			return true, now
		}
		if asked.Amount == granted {
			return isFree, client
		}
		return now != none && now != client, now
	case "acquire":
		if now == none {
			now = 0
		}
		if isKnown {
			return now == unknown || asked.Amount == now+1, asked.Amount
		}
		if now != unknown {
			now++
		}
		return true, now
	}
	panic("unknown kind of operation: " + asked.Kind)
}

func described(input, output interface{}) string {
	asked := input.(operation)
	text := fmt.Sprintf("%d: %s(%d)", asked.Client, asked.Kind, asked.Amount)
	if !output.(bool) {
		text += " unknown"
	}
	return text
}

var model = porcupine.Model{
	Init:              func() interface{} { return none },
	Step:              step,
	DescribeOperation: described,
}

func read() (map[string][]porcupine.Operation, error) {
	found := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var each operation
		if err := json.Unmarshal(lines.Bytes(), &each); err != nil {
			return nil, err
		}
		end, isKnown := int64(math.MaxInt64), each.End != nil
		if isKnown {
			end = *each.End
		}
		found[each.Key] = append(found[each.Key], porcupine.Operation{
			ClientId: each.Client, Input: each, Call: each.Begin, Output: isKnown, Return: end,
		})
	}
	return found, lines.Err()
}

func main() {
	timeout, folder := time.Minute, ""
	if len(os.Args) > 1 {
		folder = os.Args[1] // for pictures of what is not linearizable
	}
	found, err := read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "registers:", err)
		os.Exit(2)
	}
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	answers := json.NewEncoder(os.Stdout)
	for _, key := range keys {
		result, info := porcupine.CheckOperationsVerbose(model, found[key], timeout)
		each := answer{Key: key, Operations: len(found[key]), Result: string(result)}
		if result == porcupine.Illegal && folder != "" {
			each.Picture = filepath.Join(folder, strings.NewReplacer("/", "_", "%", "_").Replace(key)+".html")
			if err := porcupine.VisualizePath(model, info, each.Picture); err != nil {
				fmt.Fprintln(os.Stderr, "registers:", err)
				os.Exit(2)
			}
		}
		_ = answers.Encode(each)
	}
}
