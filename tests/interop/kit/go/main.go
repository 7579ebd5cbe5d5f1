// Apache's Go client under remote control: producers and consumers are started, used and stopped by name.
//
// The commands are those of MessagingSession.java, as far as this client can do them. A line on stdin is one
// command, its words separated by tabs: a name, then NAME=VALUE. Each gives one JSON line on stdout,
// {"answer":...} or {"error":...}. The end of stdin ends the session.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type options struct {
	command string
	values  map[string]string
}

func parse(line string) options {
	words := strings.Split(line, "\t")
	parsed := options{words[0], map[string]string{}}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		parsed.values[name] = value
	}
	return parsed
}

func (o options) text(name string, otherwise string) string {
	if value, found := o.values[name]; found {
		return value
	}
	return otherwise
}

func (o options) number(name string, otherwise int) int {
	number, err := strconv.Atoi(o.text(name, strconv.Itoa(otherwise)))
	if err != nil {
		panic(fmt.Sprintf("%s: %s is not a number", o.command, name))
	}
	return number
}

func (o options) namesrv() []string {
	return strings.Split(o.text("namesrv", ""), ";")
}

// The keys that a client signs with; none where the command has none.
func (o options) credentials() primitive.Credentials {
	return primitive.Credentials{
		AccessKey:     o.text("accessKey", ""),
		SecretKey:     o.text("secretKey", ""),
		SecurityToken: o.text("token", ""),
	}
}

var commands = map[string]func(options) (any, error){
	"start-producer": startProducer,
	"send":           send,
	"start-consumer": startConsumer,
	"received":       received,
	"start-lite":     startPoller,
	"poll":           poll,
	"pull":           pull,
	"stop":           stop,

	"start-transactions": startTransactions,
	"send-transactions":  sendTransactions,
	"checks":             takeChecks,

	"start-responder": startResponder,
	"request":         request,
	"replies":         replies,
}

// What is stopped by name.
var stoppers = map[string]func() error{}

func stop(o options) (any, error) {
	shutdown, found := stoppers[o.text("name", "")]
	if !found {
		return false, nil
	}
	delete(stoppers, o.text("name", ""))
	return true, shutdown()
}

func run(line string) (answer any, err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("%v", problem)
		}
	}()
	o := parse(line)
	command, found := commands[o.command]
	if !found {
		return nil, fmt.Errorf("unknown command %s", o.command)
	}
	return command(o)
}

func main() {
	rlog.SetLogLevel("error")
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for lines.Scan() {
		answer, err := run(lines.Text())
		if err != nil {
			answers.Encode(map[string]any{"error": err.Error()})
		} else {
			answers.Encode(map[string]any{"answer": answer})
		}
	}
}
